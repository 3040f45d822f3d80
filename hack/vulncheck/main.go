// Command vulncheck runs govulncheck on the programs: make vulncheck. Where the database of vulnerabilities cannot be reached, it says so and
// checks nothing, unless it is told that the check is required.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// reachTimeout is for one small file of the database.
const reachTimeout = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "vulncheck: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("vulncheck", flag.ContinueOnError)
	db := flags.String("db", "https://vuln.go.dev", "`URL` of the database, http, https or file")
	required := flags.Bool("required", false, "fail where the database cannot be reached")
	dir := flags.String("C", ".", "`directory` of the module to check")
	modfile := flags.String("modfile", "tools/vulncheck/go.mod", "go.mod that pins govulncheck")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := reach(ctx, *db); err != nil {
		if *required {
			return err
		}
		_, err = fmt.Fprintf(out, "vulncheck: SKIPPED, NOTHING WAS CHECKED: %v\n", err)
		return err
	}
	absolute, err := filepath.Abs(*modfile)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "-modfile="+absolute, "govulncheck", "-db="+*db, "./...")
	cmd.Dir, cmd.Stdout, cmd.Stderr = *dir, out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("govulncheck: %w", err)
	}
	return nil
}

// reach returns an error if the database does not answer.
func reach(ctx context.Context, db string) (err error) {
	if strings.HasPrefix(db, "file:") {
		return nil // govulncheck says what is wrong with a directory
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(db, "/")+"/index/db.json", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("reaching the database of vulnerabilities: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("reaching the database of vulnerabilities: %s answers %s", db, resp.Status)
	}
	return nil
}
