package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/internal/localpg"
	"github.com/pglimit/pglimit/migrations"
	"github.com/pglimit/pglimit/pgclient"
)

// What the demo plays.
const (
	demoEndpoint        = "audit.export"
	demoHolderCap       = 2
	demoInstallationCap = 3
	demoLimit           = "login_attempt"
	demoQuota           = 20
	demoSubject         = "203.0.113.7"
	demoLease           = 2 * time.Second
	demoReplicas        = 4
	demoVictim          = 3 // the replica that is killed

	demoKillAt = 4 * time.Second  // not before
	demoEnd    = 12 * time.Second // not before, and not before the places of the killed replica are taken again
	demoLast   = 40 * time.Second // however slow the machine is
	demoPoll   = 100 * time.Millisecond
)

type demoOptions struct {
	IO     *IOStreams
	getenv func(string) string
}

func newDemoCmd(f *Factory, runF func(context.Context, *demoOptions) error) *cobra.Command {
	o := &demoOptions{IO: f.IO, getenv: f.getenv}
	return &cobra.Command{
		Use:   "demo",
		Short: "See pglimit work, on a private server",
		Long: `See pglimit work: four replica processes contend for permits of audit.export, of which each holder may have
two and all together three, and count their sign-in attempts together. One replica is killed while it holds
permits; they lapse, and others take their places.

It takes about a quarter of a minute, and fails when more permits were live at once than a cap allows. The
server is a private one, made from the PostgreSQL binaries of this machine and removed at the end; no other
database is touched.`,
		Example: `  limitctl demo

  # As plain lines
  limitctl demo | cat`,
		Args: maxArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			if job := o.getenv(demoReplicaEnv); job != "" {
				return demoReplica(cmd.Context(), job, os.Stdin, os.Stdout)
			}
			return demoRun(cmd.Context(), o)
		},
	}
}

func demoRun(ctx context.Context, o *demoOptions) (err error) {
	live := o.IO.outTTY && o.getenv("TERM") != "dumb"
	if _, err := fmt.Fprintln(o.IO.Out, "Starting a private PostgreSQL server and installing pglimit."); err != nil {
		return err
	}
	server, err := localpg.Start(ctx, localpg.Options{Settings: map[string]string{"fsync": "off"}})
	if errors.Is(err, localpg.ErrNoBinaries) {
		return &problem{message: strings.TrimPrefix(err.Error(), "localpg: "), cause: err}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop(context.WithoutCancel(ctx))) }()
	app, operator, err := demoInstall(ctx, server.DSN("postgres"))
	if err != nil {
		return err
	}
	viewer, err := pgclient.Open(ctx, operator)
	if err != nil {
		return err
	}
	defer viewer.Close()
	if err := demoConfigure(ctx, viewer); err != nil {
		return err
	}

	d := newDemoShow(o.IO, live)
	if err := d.play(ctx, viewer, app); err != nil {
		return err
	}
	if failures := d.summary(); len(failures) > 0 {
		return &problem{message: strings.Join(failures, "; ")}
	}
	return nil
}

// demoInstall installs pglimit and returns the connection strings of two logins, one with the role of
// an application and one with that of an operator.
func demoInstall(ctx context.Context, dsn string) (app, operator string, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := migrations.Up(ctx, conn); err != nil {
		return "", "", err
	}
	login := func(name, role string) (string, error) {
		password := rand.Text() // letters and digits only
		if _, err := conn.Exec(ctx, "create role "+name+" login password '"+password+"' in role "+role); err != nil {
			return "", err
		}
		u, err := url.Parse(dsn)
		if err != nil {
			return "", err
		}
		u.User = url.UserPassword(name, password)
		return u.String(), nil
	}
	if app, err = login("demo_app", "pglimit_app"); err != nil {
		return "", "", err
	}
	operator, err = login("demo_operator", "pglimit_operator")
	return app, operator, err
}

func demoConfigure(ctx context.Context, client *pgclient.Client) error {
	if _, err := client.SetEndpoint(ctx, pgclient.SetEndpointParams{Endpoint: demoEndpoint, HolderCap: pgclient.N(demoHolderCap)}); err != nil {
		return err
	}
	if _, err := client.SetInstallationCap(ctx, demoInstallationCap); err != nil {
		return err
	}
	_, err := client.SetLimit(ctx, pgclient.SetLimitParams{Limit: demoLimit, MaxHits: demoQuota, Per: time.Minute})
	return err
}
