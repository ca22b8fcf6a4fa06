package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pglimit/pglimit/internal/localpg"
)

// TestMeasure carries every script out a few times. How fast that was is not looked at.
func TestMeasure(t *testing.T) {
	t.Parallel()

	o := options{clients: 2, held: time.Second, rounds: 2, seconds: time.Second, transactions: 5}
	r, err := measure(t.Context(), o, io.Discard)
	if os.Getenv("CI") == "" && (errors.Is(err, localpg.ErrNoBinaries) || errors.Is(err, errNoPgbench)) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	r.print(&out, []string{"-clients", "2"})
	lines := strings.Split(out.String(), "\n")
	if !strings.HasPrefix(lines[0], "`make bench ARGS='-clients 2'` on ") {
		t.Errorf("unexpected first line in:\n%s", out.String())
	}
	for _, want := range []string{
		"| `hit`, 10,000 keys, against the plain upsert | ",
		"| – rows written by those refusals | 0 |  |  | 0 |\n",
		"| false refusals, 2 clients on cap 3 | 0 of 20 claims |  |  | 0 |\n",
		"| `hit` by `sliding_window`, against `fixed_window`, both looked up | ",
		"| `hit` of a durable limit on a hot key, snapshot held for 1 s, against without | ",
		"| Go client, one goroutine: ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()

	o, err := parse([]string{"-only", "hit,claim", "-seconds", "10"}, io.Discard)
	if err != nil || len(o.only) != 2 || o.seconds != 10*time.Second || o.rounds != 3 {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, args := range []string{"-only hits", "-seconds 0", "-clients 1000", "hit", "-what"} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s was taken", args)
		}
	}
}

func TestParseOutcome(t *testing.T) {
	t.Parallel()

	got, err := parseOutcome("scaling factor: 1\nnumber of transactions actually processed: 10\n" +
		"latency average = 0.2 ms\ntps = 4321.5 (without initial connection time)\n")
	if err != nil || got != (outcome{tps: 4321.5, transactions: 10}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseOutcome("pgbench (15.18)\n"); err == nil {
		t.Error("nothing was taken for an outcome")
	}
}

func TestCells(t *testing.T) {
	t.Parallel()

	r := result{a: []float64{900, 1200, 1000}, b: []float64{2000, 1000, 1e6}, ratios: []float64{0.5, 0.846, 0.9}, target: 0.85, unit: perSecond}
	want := [4]string{"1,000/s", "2,000/s", "0.85 (0.50–0.90)", "≥ 0.85"}
	if got := r.cells(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.target = 0.9
	if got := r.cells()[3]; got != "**missed:** ≥ 0.90" {
		t.Errorf("got %q", got)
	}
}

func TestMedianAndThousands(t *testing.T) {
	t.Parallel()

	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median is %v", got)
	}
	for value, want := range map[float64]string{0: "0", 999.5: "1,000", 1234567: "1,234,567", 123: "123"} {
		if got := thousands(value); got != want {
			t.Errorf("%v is written %s, want %s", value, got, want)
		}
	}
}
