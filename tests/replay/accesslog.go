package main

import (
	"fmt"
	"io"
	"os"

	"github.com/pglimit/pglimit/internal/eventlog"
)

// requests are the addresses of a log's requests, in its order.
type requests struct {
	addresses []string
	malformed int // lines that are no request
	firstBad  int // number of the first of them, from 1
}

func readLog(path string) (requests, error) {
	if path == "-" {
		return parseLog(os.Stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return requests{}, err
	}
	defer f.Close()
	entries, err := parseLog(f)
	if err != nil {
		return entries, fmt.Errorf("%s: %w", path, err)
	}
	return entries, nil
}

func parseLog(r io.Reader) (requests, error) {
	var entries requests
	err := eventlog.Lines(r, func(number int, line string) {
		// The address goes to a replica on a line of its own and into a text of the database.
		if request, ok := eventlog.ParseAccess(line); ok {
			entries.addresses = append(entries.addresses, request.Address)
			return
		}
		if entries.malformed == 0 {
			entries.firstBad = number
		}
		entries.malformed++
	})
	return entries, err
}
