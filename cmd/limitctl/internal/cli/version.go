package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

type versionOptions struct {
	Build  buildInfo
	Client func(context.Context) (Client, error)
	IO     *IOStreams
	Now    func() time.Time

	Format string
	Server bool
}

type versions struct {
	buildInfo
	server *string // nil: not asked
}

var versionView = view[versions]{
	noun: "version",
	columns: []column[versions]{
		{name: "version", value: func(v versions) any { return v.Version }},
		{name: "commit", value: func(v versions) any { return v.Commit }},
		{name: "go_version", value: func(v versions) any { return v.Go }},
		{name: "server_version", value: func(v versions) any {
			if v.server == nil {
				return nil
			}
			return *v.server
		}},
	},
	sentence: func(v versions) string {
		text := "limitctl " + v.Version
		if v.Commit != "" {
			text += " (" + v.Commit + ")"
		}
		if v.server != nil {
			text += "\npglimit " + *v.server + " in the database"
		}
		return text
	},
}

func newVersionCmd(f *Factory, runF func(context.Context, *versionOptions) error) *cobra.Command {
	o := &versionOptions{Build: f.Build, Client: f.Client, IO: f.IO, Now: f.Now}
	cmd := &cobra.Command{
		Use:   "version [flags]",
		Short: "Show the version of limitctl, and of pglimit in the database",
		Long: `Show the version of limitctl, which is also that of pglimit as it would install it. With --server, also ask
the database which version is installed there.`,
		Example: `  limitctl version

  limitctl version --server -o json`,
		Args: maxArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return versionRun(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Server, "server", false, "also ask the database")
	outputVar(cmd, &o.Format, versionView)
	return cmd
}

func versionRun(ctx context.Context, o *versionOptions) error {
	v := versions{buildInfo: o.Build}
	if o.Server {
		client, err := o.Client(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		server, err := client.Version(ctx)
		if err != nil {
			return err
		}
		v.server = &server
	}
	if o.Format == formatAuto {
		// As every program prints it, in a pipe too.
		_, err := fmt.Fprintln(o.IO.Out, versionView.sentence(v))
		return err
	}
	return record(printer{format: o.Format, now: o.Now(), streams: o.IO}, versionView, v)
}
