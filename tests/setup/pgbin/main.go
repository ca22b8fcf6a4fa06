// Command pgbin prints the folder of the PostgreSQL server binaries that tests and demos would run,
// and fails with one line when there are none of a version that pglimit supports.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/pglimit/pglimit/internal/localpg"
)

// oldest is the first major version that pglimit supports.
const oldest = 15

func main() {
	dir, err := find()
	if err != nil {
		fmt.Fprintln(os.Stderr, strings.TrimPrefix(err.Error(), "localpg: "))
		os.Exit(1)
	}
	fmt.Println(dir)
}

func find() (string, error) {
	dir, err := localpg.FindBinaries()
	if err != nil {
		return "", err
	}
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s does not run (%w): set PGLIMIT_PG_BIN to the bin folder of a "+
			"PostgreSQL server, version %d or newer", filepath.Join(dir, "postgres"), err, oldest)
	}
	// "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "postgres (PostgreSQL) 19beta1"
	m := regexp.MustCompile(`\) (\d+)`).FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("cannot read a version from %q of %s: set PGLIMIT_PG_BIN to the bin folder "+
			"of a PostgreSQL server, version %d or newer", out, dir, oldest)
	}
	if major, _ := strconv.Atoi(string(m[1])); major < oldest {
		return "", fmt.Errorf("%s holds PostgreSQL %d, and pglimit needs %d or newer: install one "+
			"and set PGLIMIT_PG_BIN to its bin folder", dir, major, oldest)
	}
	return dir, nil
}
