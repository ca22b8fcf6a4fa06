package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var errNoPgbench = errors.New("pgbench is missing: install it (Debian, Ubuntu: apt-get install postgresql-contrib; " +
	"Fedora: dnf install postgresql-contrib), or set PGLIMIT_PG_BIN to a folder of server binaries that has it")

// findPgbench looks beside the server's binaries, then at other versions', then in the PATH. Some
// packages of the server come without, and it speaks to servers of any version.
func findPgbench(ctx context.Context, binDir string) (string, error) {
	others, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	slices.Reverse(others)
	for _, path := range append(append([]string{filepath.Join(binDir, "pgbench")}, others...), "pgbench") {
		// Debian's wrapper in the PATH may have nothing behind it.
		if err := exec.CommandContext(ctx, path, "--version").Run(); err == nil {
			return path, nil
		}
	}
	return "", cmp.Or(ctx.Err(), errNoPgbench)
}

// script is what each client of a measurement does again and again, in pgbench's language.
type script string

// outcome is what pgbench found.
type outcome struct {
	tps          float64
	transactions int64
}

// tps measures how often a second the clients carry a script out together.
func (b *bench) tps(ctx context.Context, s script) (float64, error) {
	o, err := b.run(ctx, s, b.options.seconds)
	return o.tps, err
}

// run has the clients carry a script out for some time.
func (b *bench) run(ctx context.Context, s script, duration time.Duration) (outcome, error) {
	path := filepath.Join(b.dir, "script.sql")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(s), "\n\t", "\n")), 0o600); err != nil {
		return outcome{}, err
	}
	args := []string{
		"--no-vacuum", "--protocol=prepared", "--file=" + path,
		"--client=" + strconv.Itoa(b.options.clients), "--jobs=" + strconv.Itoa(b.threads()),
	}
	if n := b.options.transactions; n > 0 {
		args = append(args, "--transactions="+strconv.Itoa(n))
	} else {
		args = append(args, "--time="+strconv.Itoa(int(duration.Seconds())))
	}
	cmd := exec.CommandContext(ctx, b.pgbench, append(args, b.app.String())...)
	// The caller's PG* variables (PGOPTIONS above all) are not part of the measurement.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PG") })
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return outcome{}, ctx.Err()
		}
		return outcome{}, fmt.Errorf("pgbench: %w\n%s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return parseOutcome(stdout.String())
}

var (
	tpsLine          = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)
	transactionsLine = regexp.MustCompile(`(?m)^number of transactions actually processed: ([0-9]+)`)
)

func parseOutcome(out string) (outcome, error) {
	tps, transactions := tpsLine.FindStringSubmatch(out), transactionsLine.FindStringSubmatch(out)
	if tps == nil || transactions == nil {
		return outcome{}, fmt.Errorf("pgbench printed no tps or no number of transactions:\n%s", out)
	}
	var o outcome
	var err1, err2 error
	o.tps, err1 = strconv.ParseFloat(tps[1], 64)
	o.transactions, err2 = strconv.ParseInt(transactions[1], 10, 64)
	return o, errors.Join(err1, err2)
}
