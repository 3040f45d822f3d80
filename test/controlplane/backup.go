package controlplane

import (
	"errors"
	"fmt"
	"os"
)

// BackUp copies the data of etcd into a directory, which must not exist. Both servers are stopped
// meanwhile.
func (c *ControlPlane) BackUp(dir string) error {
	if err := errors.Join(c.StopServer(APIServer), c.StopServer(Etcd)); err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(c.DataDir(Etcd))); err != nil {
		return fmt.Errorf("copying what etcd has: %w", err)
	}
	if err := c.StartServer(Etcd); err != nil {
		return err
	}
	return c.StartServer(APIServer)
}

// Restore replaces the data of etcd by a backup. It calls prepare, which may be nil, while only
// etcd runs, and then starts the API server.
func (c *ControlPlane) Restore(dir string, prepare func() error) error {
	if err := errors.Join(c.StopServer(APIServer), c.StopServer(Etcd)); err != nil {
		return err
	}
	data := c.DataDir(Etcd)
	err := os.RemoveAll(data)
	if err == nil {
		err = os.CopyFS(data, os.DirFS(dir))
	}
	if err == nil {
		err = os.Chmod(data, 0o700) // required by etcd
	}
	if err != nil {
		return fmt.Errorf("restoring what etcd had: %w", err)
	}
	if err := c.StartServer(Etcd); err != nil {
		return err
	}
	if prepare != nil {
		if err := prepare(); err != nil {
			return err
		}
	}
	return c.StartServer(APIServer)
}
