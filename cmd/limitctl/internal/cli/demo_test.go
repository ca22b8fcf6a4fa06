package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pglimit/pglimit/internal/localpg"
	"github.com/pglimit/pglimit/pgclient"
)

// The demo starts its own program as its replicas, which here is the test binary.
func init() {
	if os.Getenv(demoReplicaEnv) != "" {
		os.Exit(Main(context.Background(), []string{"demo"}))
	}
}

func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	if _, err := localpg.FindBinaries(); os.Getenv("CI") == "" && errors.Is(err, localpg.ErrNoBinaries) {
		t.Skip(err)
	}
	b := setup(false)
	started := time.Now()
	code := b.run("demo")
	out := b.out.String()
	if code != exitOK {
		t.Errorf("exit code %d, stderr %s", code, b.errOut)
	}
	if took := time.Since(started); took > time.Minute {
		t.Errorf("took %v", took)
	}
	for _, want := range []string{
		"Caps kept",
		"20 allowed of a quota of 20 a minute",
		"killed with SIGKILL while it held: ",
		"place taken again by permit ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the output", want)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("escape sequences in a pipe")
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestDemoTellsAnExceededCap(t *testing.T) {
	t.Parallel()
	now := time.Now()
	row := func(id int64, holder string, claimed, expires time.Duration) pgclient.PermitRow {
		return pgclient.PermitRow{ID: id, Holder: holder, ClaimedAt: now.Add(claimed), ExpiresAt: now.Add(expires)}
	}
	for name, tt := range map[string]struct {
		rows []pgclient.PermitRow
		want string
	}{
		"Holder": {
			[]pgclient.PermitRow{row(1, "alice", 0, 9), row(2, "alice", 1, 9), row(3, "alice", 2, 9)},
			"alice had 3 permits at once, the cap is 2",
		},
		"Installation": {
			[]pgclient.PermitRow{row(1, "alice", 0, 9), row(2, "bob", 1, 9), row(3, "bob", 2, 9), row(4, "carol", 3, 9)},
			"4 permits were live at once, the cap is 3",
		},
		"LapsedBeforeTheLastClaim": {
			[]pgclient.PermitRow{row(1, "alice", 0, 3), row(2, "bob", 1, 9), row(3, "bob", 2, 9), row(4, "carol", 3, 9)},
			"",
		},
	} {
		streams, _, _, _ := testIO(false)
		d := newDemoShow(streams, false)
		d.look(tt.rows, time.Second)
		got := strings.Join(d.summary(), "; ")
		if tt.want == "" && strings.Contains(got, "cap is") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
