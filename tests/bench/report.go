package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglimit/pglimit/migrations"
)

// unit is what a comparison's two sides are measured in.
type unit string

const (
	microseconds unit = " µs"
	perSecond    unit = "/s"
)

// result is a line of the table: a comparison, or a fact.
type result struct {
	title string

	a, b, ratios []float64 // by round
	target       float64   // the ratio to reach, 0 for none
	unit         unit

	fact string // instead of a comparison
	met  bool
	want string
}

// cells are the result's columns but for the title.
func (r result) cells() [4]string {
	if r.fact != "" {
		return [4]string{r.fact, "", "", verdict(r.want, r.met)}
	}
	ratio := median(r.ratios)
	cells := [4]string{
		thousands(median(r.a)) + string(r.unit),
		thousands(median(r.b)) + string(r.unit),
		fmt.Sprintf("%.2f (%.2f–%.2f)", ratio, slices.Min(r.ratios), slices.Max(r.ratios)),
	}
	if r.target > 0 {
		// What the table shows counts: 0.848 is shown as 0.85.
		cells[3] = verdict(fmt.Sprintf("≥ %.2f", r.target), math.Round(ratio*100) >= math.Round(r.target*100))
	}
	return cells
}

func verdict(target string, met bool) string {
	if met {
		return target
	}
	return "**missed:** " + target
}

// report is a whole run.
type report struct {
	commit   string
	cpu      string
	memory   string
	options  options
	results  []result
	server   string
	started  time.Time
	system   string
	version  string
	settings []string
}

// machine notes where and with what this is measured. No host name: the table is to be published.
func (r *report) machine(ctx context.Context, conn *pgx.Conn) error {
	if err := conn.QueryRow(ctx, "select current_setting('server_version')").Scan(&r.server); err != nil {
		return err
	}
	r.commit = commit(ctx)
	r.cpu = firstValue("/proc/cpuinfo", "model name")
	r.memory = firstValue("/proc/meminfo", "MemTotal")
	r.system = firstValue("/etc/os-release", "PRETTY_NAME")
	r.version = migrations.Version
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		r.settings = append(r.settings, name+" = "+settings[name])
	}
	return nil
}

// commit names the measured source, with a plus when there are changes in it that have no name.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return ""
	}
	name := string(bytes.TrimSpace(out))
	if exec.CommandContext(ctx, "git", "diff", "--quiet", "HEAD").Run() != nil {
		name += "+"
	}
	return name
}

// firstValue reads from files in which lines give a name, a sign and a value, the first of the name.
func firstValue(path, name string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if i := strings.IndexAny(line, ":="); i > 0 && strings.TrimSpace(line[:i]) == name {
			return strings.Trim(strings.TrimSpace(line[i+1:]), `"`)
		}
	}
	return ""
}

func (r report) print(w io.Writer, args []string) {
	command := "make bench"
	if len(args) > 0 {
		command += " ARGS='" + strings.Join(args, " ") + "'"
	}
	source := "pglimit " + r.version
	if r.commit != "" {
		source += " at " + r.commit
	}
	machine := fmt.Sprintf("%d × %s", runtime.NumCPU(), orUnknown(r.cpu))
	if r.memory != "" {
		machine += ", " + r.memory
	}
	fmt.Fprintf(w, "`%s` on %s: %s; PostgreSQL %s (%s, else default settings), %s; %s, %s, %s.\n",
		command, r.started.Format(time.DateOnly), source, r.server, strings.Join(r.settings, ", "), runtime.Version(),
		machine, orUnknown(r.system), runtime.GOOS+"/"+runtime.GOARCH)
	fmt.Fprintf(w, "Medians of %d rounds of %d s, %d clients, `pgbench --protocol=prepared`; in brackets the range of the ratio.\n\n",
		r.options.rounds, int(r.options.seconds.Seconds()), r.options.clients)

	fmt.Fprintln(w, "| | pglimit | against | ratio | target |")
	fmt.Fprintln(w, "|---|--:|--:|--:|---|")
	for _, result := range r.results {
		fmt.Fprintf(w, "| %s |", result.title)
		for _, cell := range result.cells() {
			fmt.Fprintf(w, " %s |", cell)
		}
		fmt.Fprintln(w)
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// median of a list that has something in it.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// thousands writes a number without decimals and with commas.
func thousands(value float64) string {
	digits := fmt.Sprintf("%.0f", value)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
