package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// requests are the addresses of a log's requests, in its order.
type requests struct {
	addresses []string
	malformed int // lines that are no request
	firstBad  int // number of the first of them, from 1
}

// logLine is a line in common log format: address, identity, user, [time], "request", status, size.
// The combined format adds referrer and agent; what follows the size is not read, so that a line whose
// agent was cut off still counts. Servers write a quote inside quotes with a backslash before it.
var logLine = regexp.MustCompile(`^(\S+) \S+ .*?\[[^\]]+\] "(?:[^"\\]|\\.)*" \d{3} (?:\d+|-)(?:\s|$)`)

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

// parseLog reads any lines, however long: a log of the open Internet holds all kinds of bytes.
func parseLog(r io.Reader) (requests, error) {
	var entries requests
	reader := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := reader.ReadString('\n')
		if err != nil && err != io.EOF {
			return entries, err
		}
		if line != "" {
			// The address goes to a replica on a line of its own and into a text of the database.
			m := logLine.FindStringSubmatch(strings.ToValidUTF8(line, "?"))
			if m != nil && !strings.Contains(m[1], "\x00") {
				entries.addresses = append(entries.addresses, m[1])
			} else {
				if entries.malformed == 0 {
					entries.firstBad = number
				}
				entries.malformed++
			}
		}
		if err == io.EOF {
			return entries, nil
		}
	}
}
