package controlplane

import (
	"errors"
	"fmt"
	"os"
)

// BackUp copies all that etcd has into a directory, which must not exist. Both servers are down meanwhile.
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

// Restore makes etcd have what a backup has. With etcd alone running, it calls prepare, which may be nil, and then starts the
// API server.
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
		err = os.Chmod(data, 0o700) // etcd insists
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
