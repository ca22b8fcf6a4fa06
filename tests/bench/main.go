// Command bench measures the ratios that docs/performance.md states, on a private server with
// PostgreSQL's own, durable settings. Each compares two things in one run on one machine, in turns
// (A B A B), and gives medians: ratios hold on other machines, calls per second do not.
//
//	make bench
//	make bench ARGS='-only hit,claim -seconds 10'
//
// It prints a table in Markdown, with all that is needed to repeat it.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/internal/localpg"
	"github.com/pglimit/pglimit/migrations"
)

//go:embed baseline.sql
var baseline string

// settings are those of the server; everything else is PostgreSQL's default.
var settings = map[string]string{"shared_buffers": "512MB"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil:
		os.Exit(0)
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// options are what the command line says.
type options struct {
	clients      int
	held         time.Duration
	only         []string
	rounds       int
	seconds      time.Duration
	transactions int // instead of seconds, for tests
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var held, seconds int
	var only string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.clients, "clients", 8, "connections that call at once")
	flags.IntVar(&held, "held", 15, "seconds of load under a held snapshot before it is measured")
	flags.StringVar(&only, "only", "", "comma-separated `rows` to measure, of: "+strings.Join(rowNames(), ", "))
	flags.IntVar(&o.rounds, "rounds", 3, "rounds of each comparison")
	flags.IntVar(&seconds, "seconds", 3, "seconds of each measurement")
	if err := flags.Parse(args); err != nil {
		return o, flag.ErrHelp // Parse has printed it, with the usage
	}
	o.held, o.seconds = time.Duration(held)*time.Second, time.Duration(seconds)*time.Second
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(rowNames(), name) {
			return o, fmt.Errorf("-only %s: no such row; there are %s", name, strings.Join(rowNames(), ", "))
		}
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("what is %q? The command has flags only, see -help", flags.Arg(0))
	case o.clients < 1 || o.clients > 80:
		return o, fmt.Errorf("-clients %d: want 1 to 80", o.clients)
	case held < 1 || o.rounds < 1 || seconds < 1:
		return o, errors.New("-held, -rounds and -seconds are 1 or more")
	}
	return o, nil
}

// run is the whole program but for the exit code. Progress goes to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	report, err := measure(ctx, o, stderr)
	if err != nil {
		return err
	}
	report.print(stdout, args)
	return nil
}

// measure starts the server and takes all rows.
func measure(ctx context.Context, o options, progress io.Writer) (report, error) {
	server, err := localpg.Start(ctx, localpg.Options{Settings: settings})
	if err != nil {
		return report{}, err
	}
	defer func() { _ = server.Stop(context.WithoutCancel(ctx)) }()

	b, err := newBench(ctx, o, server)
	if err != nil {
		return report{}, err
	}
	defer b.close()

	r := report{options: o, started: time.Now()}
	if err := r.machine(ctx, b.super); err != nil {
		return r, err
	}
	for _, row := range rows {
		if o.only != nil && !slices.Contains(o.only, row.name) {
			continue
		}
		began := time.Now()
		fmt.Fprintf(progress, "measuring %s …", row.name)
		results, err := row.measure(b, ctx)
		if err != nil {
			fmt.Fprintln(progress)
			return r, fmt.Errorf("%s: %w", row.name, err)
		}
		fmt.Fprintf(progress, " %v\n", time.Since(began).Round(time.Second))
		r.results = append(r.results, results...)
	}
	return r, nil
}

// bench is a server with pglimit and the baselines in it.
type bench struct {
	app     *url.URL // as a member of pglimit_app, like an application
	dir     string   // of the scripts
	options options
	pgbench string
	server  *localpg.Server
	super   *pgx.Conn
}

// login is the role that calls; it owns the baselines too, so that both sides are the same login.
const login = "bench"

func newBench(ctx context.Context, o options, server *localpg.Server) (*bench, error) {
	pgbench, err := findPgbench(ctx, server.BinDir)
	if err != nil {
		return nil, err
	}
	super, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, pgbench: pgbench, server: server, super: super}
	if err := b.prepare(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) prepare(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "pglimit-bench-"); err != nil {
		return err
	}
	if _, err = migrations.Up(ctx, b.super); err != nil {
		return err
	}
	_, err = b.super.Exec(ctx, `
		create role `+login+` login in role pglimit_app;
		grant create on database postgres to `+login+`;
		set session authorization `+login+`;
		`+baseline+`
		reset session authorization;
		select pglimit.set_limit('bench_row', max_hits => 1000000, per => '1 minute');
		select pglimit.set_limit('bench_sliding', max_hits => 1000000, per => '1 minute', algorithm => 'sliding_window');
		select pglimit.set_limit('bench_bucket', max_hits => 1000000, per => '1 minute', algorithm => 'token_bucket');
		select pglimit.set_limit('bench_calendar', max_hits => 100000000, per => '1 hour', algorithm => 'calendar');
		select pglimit.set_limit('bench_row_full', max_hits => 10, per => '1000 days');
		select pglimit.set_limit('bench_sliding_full', max_hits => 10, per => '1000 days', algorithm => 'sliding_window');
		select pglimit.set_limit('bench_bucket_full', max_hits => 10, per => '1000 days', algorithm => 'token_bucket');
		select pglimit.set_limit('bench_calendar_full', max_hits => 10, per => '1 year', algorithm => 'calendar');
		select pglimit.set_endpoint('plain', endpoint_cap => 25, time_bound => '30 s', in_installation => false);
		select pglimit.set_endpoint('fair', endpoint_cap => 25, time_bound => '30 s', in_installation => false, fair => true);
		select pglimit.set_endpoint('two_pools', holder_cap => 25, endpoint_cap => 25, time_bound => '30 s', in_installation => false);
		select pglimit.set_endpoint('overridden', endpoint_cap => 25, time_bound => '30 s', in_installation => false);
		select pglimit.set_endpoint_override('overridden', 'h' || i, holder_cap => 25) from generate_series(1, 1000) i;
		select pglimit.set_endpoint('shadow', endpoint_cap => 0, time_bound => '30 s', mode => 'shadow')`)
	if err != nil {
		return err
	}

	// The socket, where there is one: over TCP the network would be a larger part of both sides, and
	// the ratios prettier.
	query := url.Values{"host": {filepath.Dir(b.server.DataDir)}, "port": {strconv.Itoa(b.server.Port)}}
	b.app = &url.URL{Scheme: "postgres", User: url.User(login), Path: "/postgres", RawQuery: query.Encode()}
	if conn, err := net.Dial("unix", b.socket()); err == nil {
		return conn.Close()
	}
	const password = "bench" // the server ends with this program, and the role may do next to nothing
	b.app = &url.URL{
		Scheme: "postgres", User: url.UserPassword(login, password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(b.server.Port)), Path: "/postgres",
	}
	_, err = b.super.Exec(ctx, "alter role "+login+" password '"+password+"'")
	return err
}

func (b *bench) socket() string {
	return filepath.Join(filepath.Dir(b.server.DataDir), ".s.PGSQL."+strconv.Itoa(b.server.Port))
}

func (b *bench) close() {
	_ = b.super.Close(context.Background())
	_ = os.RemoveAll(b.dir)
}

// number asks for one.
func (b *bench) number(ctx context.Context, sql string, args ...any) (n int64, err error) {
	err = b.super.QueryRow(ctx, sql, args...).Scan(&n)
	return n, err
}

// vacuum removes what a held snapshot has left behind.
func (b *bench) vacuum(ctx context.Context) error {
	_, err := b.super.Exec(ctx, "vacuum pglimit.counters, pglimit.durable_counters, pglimit.permits")
	return err
}

// settle waits until the callers' sessions have ended: they report what they wrote at their end.
func (b *bench) settle(ctx context.Context) error {
	for {
		n, err := b.number(ctx, "select count(*) from pg_stat_activity where usename = $1", login)
		if n == 0 || err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// threads is how many pgbench uses.
func (b *bench) threads() int { return min(b.options.clients, runtime.NumCPU()) }
