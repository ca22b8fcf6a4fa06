package cli

import (
	"context"
	"io"
	"runtime/debug"
	"time"

	"github.com/pglimit/pglimit/migrations"
)

// Factory hands commands what they need. The parts that cost something are functions, so that nothing
// connects before a command asks for it.
type Factory struct {
	Build    buildInfo
	Client   func(context.Context) (Client, error)
	IO       *IOStreams
	Migrator func(context.Context) (Migrator, error)
	Now      func() time.Time
	Render   func(io.Writer) error

	connector *connector // where the connection flags of the root command go
	getenv    func(string) string
}

// newFactory returns the factory of the real program.
func newFactory(streams *IOStreams, getenv func(string) string) *Factory {
	c := &connector{getenv: getenv, streams: streams}
	return &Factory{
		Build:     readBuild(),
		Client:    c.client,
		IO:        streams,
		Migrator:  c.migrator,
		Now:       time.Now,
		Render:    migrations.Render,
		connector: c,
		getenv:    getenv,
	}
}

// buildInfo is what the program knows about itself.
type buildInfo struct {
	Commit  string
	Go      string
	Version string
}

func readBuild() buildInfo {
	b := buildInfo{Version: migrations.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go = info.GoVersion
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	if b.Commit != "" {
		b.Commit += dirty
	}
	return b
}
