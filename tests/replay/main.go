// Command replay plays an access log against pglimit, as if the requests came in now: each is one hit
// of its address, and several replica processes share them out. Then it compares what was allowed
// with the arithmetic on the file. It exits with 1 when a single answer is off.
//
//	make replay LOG=access.log
//
// It starts a private server, or uses the database of DATABASE_URL, where the login must be allowed
// to install pglimit and to act as pglimit_app. There its counts are under a tenant of their own, and
// purge takes them after their window.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/internal/localpg"
	"github.com/pglimit/pglimit/migrations"
)

func main() {
	if isReplica() {
		exit(replica(context.Background(), os.Stdin, os.Stdout))
	}
	// The terminal's Ctrl-C reaches the replicas too. Here it must end in Stop.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, os.Args[1:], os.Stdout))
}

func exit(err error) {
	switch {
	case err == nil:
		os.Exit(0)
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "replay:", err)
	os.Exit(1)
}

var errInterrupted = errors.New("interrupted: nothing was compared")

// options are what the command line says.
type options struct {
	databaseURL string
	log         string
	max         int64
	per         time.Duration
	replicas    int
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	flags.StringVar(&o.databaseURL, "database-url", os.Getenv("DATABASE_URL"),
		"database to use; `URL` defaults to $DATABASE_URL, else to a private server")
	flags.Int64Var(&o.max, "max", 30, "hits each address may make")
	flags.DurationVar(&o.per, "per", 24*time.Hour, "window of the limit")
	flags.IntVar(&o.replicas, "replicas", 4, "processes that share out the requests")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: replay [flags] LOG\n\nLOG is an access log in common or combined format, - the standard input.")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		// Parse has printed it, with the usage.
		return o, flag.ErrHelp
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return o, flag.ErrHelp
	}
	o.log = flags.Arg(0)
	switch {
	case o.max < 0:
		return o, fmt.Errorf("-max %d: want zero or more hits", o.max)
	case o.per <= 0:
		return o, fmt.Errorf("-per %v: want a window longer than nothing, such as 24h", o.per)
	case o.replicas < 1 || o.replicas > 64:
		return o, fmt.Errorf("-replicas %d: want 1 to 64 processes", o.replicas)
	}
	return o, nil
}

// run is the whole program but for the exit code.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	entries, err := readLog(o.log)
	if err != nil {
		return err
	}
	if len(entries.addresses) == 0 {
		return fmt.Errorf("%s: no line of %d is a request in common or combined log format", o.log, entries.malformed)
	}

	target := o.databaseURL
	if target == "" {
		server, err := localpg.Start(ctx, localpg.Options{})
		if err != nil {
			return err
		}
		defer func() { _ = server.Stop(context.WithoutCancel(ctx)) }()
		target = server.DSN("postgres")
	}
	if err := install(ctx, target); err != nil {
		return err
	}

	started := time.Now()
	results, err := play(ctx, job{
		DatabaseURL: target,
		Max:         o.max,
		Per:         o.per,
		Tenant:      "replay " + rand.Text(),
	}, o.replicas, entries.addresses)
	if ctx.Err() != nil {
		return errInterrupted // and not what the replicas died of
	}
	if err != nil {
		return err
	}
	took := time.Since(started)

	report := newReport(entries, results, o)
	report.print(stdout, filepath.Base(o.log), took)
	if took >= o.per {
		return fmt.Errorf("the replay took %v, longer than the window of %v: addresses got more than one window, "+
			"so there is nothing to compare with; give a longer -per", took.Round(time.Millisecond), o.per)
	}
	return report.check(stdout)
}

// install brings pglimit into the database.
func install(ctx context.Context, target string) error {
	conn, err := pgx.Connect(ctx, target)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = migrations.Up(ctx, conn)
	return err
}
