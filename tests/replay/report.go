package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// busiest is how many addresses the report shows.
const busiest = 10

// row compares an address's answers with the file.
type row struct {
	address  string
	got      count
	requests int64
	want     count
}

// report is the outcome of a replay, the busiest address first.
type report struct {
	entries requests
	options options
	rows    []row
}

func newReport(entries requests, results map[string]count, o options) report {
	asked := map[string]int64{}
	for _, address := range entries.addresses {
		asked[address]++
	}
	r := report{entries: entries, options: o}
	for address, n := range asked {
		allowed := min(n, o.max)
		r.rows = append(r.rows, row{
			address:  address,
			got:      results[address],
			requests: n,
			want:     count{Allowed: allowed, Refused: n - allowed},
		})
	}
	slices.SortFunc(r.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.requests, a.requests), cmp.Compare(a.address, b.address))
	})
	for address := range maps.Keys(results) {
		if asked[address] == 0 { // would be a replica's invention
			r.rows = append(r.rows, row{address: address, got: results[address]})
		}
	}
	return r
}

// total adds up the rows.
func (r report) total() row {
	all := row{address: "all"}
	for _, row := range r.rows {
		all.requests += row.requests
		all.got.Allowed += row.got.Allowed
		all.got.Refused += row.got.Refused
		all.want.Allowed += row.want.Allowed
		all.want.Refused += row.want.Refused
	}
	return all
}

func (r report) print(w io.Writer, log string, took time.Duration) {
	all := r.total()
	fmt.Fprintf(w, "%s: %d requests of %d addresses by %d replica processes in %v (%.0f/s)\n",
		log, all.requests, len(r.rows), r.options.replicas, took.Round(time.Millisecond),
		float64(all.requests)/took.Seconds())
	if r.entries.malformed > 0 {
		fmt.Fprintf(w, "malformed lines left out: %d, the first is line %d\n", r.entries.malformed, r.entries.firstBad)
	}
	fmt.Fprintf(w, "limit %s: %d per %v\n\n", limitName, r.options.max, r.options.per)

	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "address\trequests\tallowed\trefused\t")
	for _, row := range append([]row{all}, r.rows[:min(busiest, len(r.rows))]...) {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t\n", row.address, row.requests, row.got.Allowed, row.got.Refused)
	}
	_ = table.Flush()
	fmt.Fprintln(w)
}

// check compares every address with the arithmetic on the file.
func (r report) check(w io.Writer) error {
	var wrong int
	for _, row := range r.rows {
		if row.got == row.want {
			continue
		}
		if wrong++; wrong <= busiest {
			fmt.Fprintf(w, "%s: allowed %d, refused %d of %d; the file says %d and %d\n",
				row.address, row.got.Allowed, row.got.Refused, row.requests, row.want.Allowed, row.want.Refused)
		}
	}
	if wrong > 0 {
		return errors.New(plural(wrong) + " not as the file says (above)")
	}
	fmt.Fprintf(w, "every address as the file says: the first %d of its requests allowed, the rest refused\n", r.options.max)
	return nil
}

func plural(n int) string {
	if n == 1 {
		return "1 address is"
	}
	return fmt.Sprintf("%d addresses are", n)
}
