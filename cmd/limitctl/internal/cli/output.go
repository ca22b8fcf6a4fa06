package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// view says how things of one kind are shown, in every format.
type view[T any] struct {
	noun    string // in the singular
	columns []column[T]
	name    func(T) string // for -o name; nil where no one word names it

	// sentence is what a terminal shows of the answer to a verb; nil shows columns.
	sentence func(T) string
}

// column is one field. Its value is a string, an int64, a bool, a []string, a json.RawMessage, a
// time.Time or a time.Duration, or a pointer to one; a nil pointer, a nil RawMessage and the zero time
// are NULL.
type column[T any] struct {
	name  string // the SQL column's
	head  string // the heading in a table; "" for the name
	value func(T) any
	show  show
	color func(T) (color, sign string) // for words that mean good or bad; nil for plain
}

func (c column[T]) heading() string {
	if c.head != "" {
		return c.head
	}
	return strings.ToUpper(strings.ReplaceAll(c.name, "_", "-"))
}

// show says where a column is seen. All are in the machines' formats: json, jsonl, yaml, csv.
type show int

const (
	always   show = 0
	wide     show = 1 << iota // in a table only with -o wide, and not in a pipe's lines
	ifAny                     // for people only where there is one
	flexible                  // may be cut to fit the terminal
)

// formats are the values of -o. Without it a terminal gets a table and a pipe gets lines.
const (
	formatAuto  = ""
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatLines = "jsonl"
	formatYAML  = "yaml"
	formatCSV   = "csv"
	formatName  = "name"
)

// outputVar adds -o with the formats that a view has.
func outputVar[T any](cmd *cobra.Command, format *string, v view[T]) {
	allowed := []string{formatTable, formatWide, formatJSON, formatLines, formatYAML, formatCSV}
	if v.name != nil {
		allowed = append(allowed, formatName)
	}
	enumVar(cmd, cmd.Flags(), format, "output", "o", formatAuto, "format", allowed...)
}

// printer writes things in one format.
type printer struct {
	format  string
	now     time.Time
	stamp   bool // each jsonl row says when it was seen
	streams *IOStreams
}

// list writes rows and returns how many there were. Formats that need not look at all rows first write
// each page as it comes.
func list[T any](p printer, v view[T], rows iter.Seq2[T, error]) (n int, err error) {
	out := p.streams.Out
	switch p.format {
	case formatAuto, formatTable, formatWide:
		if p.format == formatAuto && !p.streams.outTTY {
			return each(rows, func(_ int, row T) error { return writeTSV(out, v, row) })
		}
		if p.format == formatAuto && v.sentence != nil {
			return each(rows, func(_ int, row T) error {
				_, err := fmt.Fprintln(out, v.sentence(row))
				return err
			})
		}
		var all []T
		n, err = each(rows, func(_ int, row T) error { all = append(all, row); return nil })
		if err == nil && n > 0 {
			err = writeTable(p, v, all)
		}
		return n, err
	case formatName:
		return each(rows, func(_ int, row T) error {
			_, err := fmt.Fprintln(out, v.name(row))
			return err
		})
	case formatLines:
		return each(rows, func(_ int, row T) error {
			_, err := out.Write(append(toJSON(p, v, row), '\n'))
			return err
		})
	case formatJSON:
		n, err = each(rows, func(i int, row T) error {
			lead := "[\n"
			if i > 0 {
				lead = ",\n"
			}
			_, err := out.Write(append([]byte(lead), toJSON(p, v, row)...))
			return err
		})
		if err != nil {
			return n, err
		}
		end := "\n]\n"
		if n == 0 {
			end = "[]\n"
		}
		_, err = io.WriteString(out, end)
		return n, err
	case formatYAML:
		n, err = each(rows, func(_ int, row T) error {
			text, err := toYAML(slices.Concat([]byte("["), toJSON(p, v, row), []byte("]")))
			if err == nil {
				_, err = out.Write(text)
			}
			return err
		})
		if err == nil && n == 0 {
			_, err = io.WriteString(out, "[]\n")
		}
		return n, err
	case formatCSV:
		w := csv.NewWriter(out)
		head := func() error {
			names := make([]string, len(v.columns))
			for i, c := range v.columns {
				names[i] = c.name
			}
			return w.Write(names)
		}
		n, err = each(rows, func(i int, row T) error {
			if i == 0 {
				if err := head(); err != nil {
					return err
				}
			}
			record := make([]string, len(v.columns))
			for j, c := range v.columns {
				record[j] = machineText(c.value(row))
				if p.streams.outTTY {
					record[j] = printable(record[j])
				}
			}
			if err := w.Write(record); err != nil {
				return err
			}
			w.Flush()
			return w.Error()
		})
		if err == nil && n == 0 {
			err = head()
		}
		w.Flush()
		if err == nil {
			err = w.Error()
		}
		return n, err
	}
	return 0, fmt.Errorf("unknown format %q", p.format)
}

// record writes one thing: a field a line for people and pipes, one object in the other formats.
func record[T any](p printer, v view[T], row T) error {
	out := p.streams.Out
	switch {
	case p.format == formatAuto && p.streams.outTTY && v.sentence != nil:
		_, err := fmt.Fprintln(out, v.sentence(row))
		return err
	case p.format == formatAuto && !p.streams.outTTY:
		for _, c := range v.columns {
			if _, err := fmt.Fprintf(out, "%s\t%s\n", c.name, printable(machineText(c.value(row)))); err != nil {
				return err
			}
		}
		return nil
	case p.format == formatAuto, p.format == formatTable, p.format == formatWide:
		return writeFields(p, v, row)
	case p.format == formatJSON:
		var b bytes.Buffer
		if err := json.Indent(&b, toJSON(p, v, row), "", "  "); err != nil {
			return err
		}
		b.WriteByte('\n')
		_, err := out.Write(b.Bytes())
		return err
	case p.format == formatYAML:
		text, err := toYAML(toJSON(p, v, row))
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	_, err := list(p, v, func(yield func(T, error) bool) { yield(row, nil) })
	return err
}

// sayNothing says on ErrOut that there was nothing to do, where record writes no sentence.
func sayNothing(p printer, sentence string) {
	if p.format != formatAuto || !p.streams.outTTY {
		fmt.Fprintln(p.streams.ErrOut, sentence)
	}
}

// each calls fn with every row until there is an error.
func each[T any](rows iter.Seq2[T, error], fn func(i int, row T) error) (n int, err error) {
	for row, err := range rows {
		if err != nil {
			return n, err
		}
		if err := fn(n, row); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func writeTSV[T any](out io.Writer, v view[T], row T) error {
	var cells []string
	for _, c := range v.columns {
		if c.show&wide == 0 {
			cells = append(cells, printable(machineText(c.value(row))))
		}
	}
	_, err := fmt.Fprintln(out, strings.Join(cells, "\t"))
	return err
}

// writeTable writes columns below upper-case headings. On a terminal, text of any length is cut so
// that a row stays on its line; -o wide and everything that is not a terminal get all of it.
func writeTable[T any](p printer, v view[T], rows []T) error {
	type cellColumn struct {
		column[T]
		cells []string // the heading first
	}
	var columns []*cellColumn
	for _, c := range v.columns {
		if c.show&wide != 0 && p.format != formatWide {
			continue
		}
		col := &cellColumn{column: c, cells: []string{c.heading()}}
		empty := true
		for _, row := range rows {
			text := p.text(c.value(row))
			empty = empty && text == ""
			if c.color != nil {
				_, sign := c.color(row)
				text = sign + text
			}
			col.cells = append(col.cells, text)
		}
		if !empty || c.show&ifAny == 0 {
			columns = append(columns, col)
		}
	}

	if p.streams.outTTY && p.format != formatWide {
		width, _ := p.streams.size()
		widths := make([]int, len(columns))
		total := -2
		for i, col := range columns {
			for _, cell := range col.cells {
				widths[i] = max(widths[i], len([]rune(cell)))
			}
			total += widths[i] + 2
		}
		for total > width {
			// Shrink the widest that may be.
			widest := -1
			for i, col := range columns {
				if col.show&flexible != 0 && widths[i] > 12 && (widest < 0 || widths[i] > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
			total--
			for j, cell := range columns[widest].cells {
				columns[widest].cells[j] = shorten(cell, widths[widest])
			}
		}
	}

	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i := range len(rows) + 1 {
		for j, col := range columns {
			cell := col.cells[i]
			if col.column.color != nil {
				// tabwriter counts the escapes as text. It does so for every cell of the column, heading
				// included, and all are of one length, so the columns behind still line up.
				color := plain
				if i > 0 {
					color, _ = col.column.color(rows[i-1])
				}
				cell = p.streams.paint(color, cell)
			}
			if j > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, cell)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return writeTrimmed(p.streams.Out, &b)
}

// writeFields writes one thing for a person, a field a line.
func writeFields[T any](p printer, v view[T], row T) error {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range v.columns {
		value := c.value(row)
		text := p.text(value)
		if text == "" && c.show&ifAny != 0 {
			continue
		}
		switch v := value.(type) {
		case time.Time:
			if p.streams.outTTY && !v.IsZero() {
				text = v.UTC().Format(time.RFC3339) + " (" + ago(v, p.now) + ")"
			}
		case []string:
			lines := make([]string, len(v))
			for i := range v {
				lines[i] = printable(v[i])
			}
			text = strings.Join(lines, "\n\t")
		}
		if _, isText := value.(string); text == "" && !isText {
			text = "none" // what a flag takes for it
		}
		if c.color != nil {
			if color, sign := c.color(row); color != plain {
				text = p.streams.paint(color, sign+text)
			}
		}
		fmt.Fprintf(w, "%s:\t%s\n", strings.ReplaceAll(c.name, "_", " "), text)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return writeTrimmed(p.streams.Out, &b)
}

// writeTrimmed leaves out the spaces that an empty last column has in front of it.
func writeTrimmed(out io.Writer, b *bytes.Buffer) error {
	var trimmed bytes.Buffer
	for l := range bytes.Lines(b.Bytes()) {
		trimmed.Write(append(bytes.TrimRight(l, " \n"), '\n'))
	}
	_, err := out.Write(trimmed.Bytes())
	return err
}

// text is a value as a table shows it: relative times on a terminal.
func (p printer) text(value any) string {
	if t, ok := value.(time.Time); ok && p.streams.outTTY && !t.IsZero() {
		return ago(t, p.now)
	}
	return printable(machineText(value))
}

// machineText is a value as lines and CSV show it.
func machineText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case *int64:
		if v != nil {
			return strconv.FormatInt(*v, 10)
		}
	case time.Duration:
		return formatDuration(v)
	case *time.Duration:
		if v != nil {
			return formatDuration(*v)
		}
	case time.Time:
		if !v.IsZero() {
			return timestamp(v)
		}
	case json.RawMessage:
		return string(v)
	case []string:
		return strings.Join(v, "; ")
	}
	return ""
}

// toJSON is a row as one JSON object, in the order of the columns. A duration comes twice: as people
// write it, and as a number of seconds for programs.
func toJSON[T any](p printer, v view[T], row T) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	add := func(name string, value any) {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(jsonText(name))
		b.WriteByte(':')
		b.WriteString(jsonText(value))
	}
	if p.stamp {
		add("observed_at", p.now)
	}
	for _, c := range v.columns {
		value := c.value(row)
		add(c.name, value)
		switch d := value.(type) {
		case time.Duration:
			add(c.name+"_seconds", seconds(d))
		case *time.Duration:
			if d == nil {
				add(c.name+"_seconds", nil)
			} else {
				add(c.name+"_seconds", seconds(*d))
			}
		}
	}
	b.WriteByte('}')
	return b.Bytes()
}

// seconds is a number for JSON: whole where it is, else with its decimals.
func seconds(d time.Duration) json.Number {
	return json.Number(strconv.FormatFloat(d.Seconds(), 'f', -1, 64))
}

func jsonText(value any) string {
	switch v := value.(type) {
	case time.Time:
		if v.IsZero() {
			return "null"
		}
		value = timestamp(v)
	case time.Duration:
		value = formatDuration(v)
	case *time.Duration:
		if v == nil {
			return "null"
		}
		value = formatDuration(*v)
	case []string:
		if v == nil {
			return "[]"
		}
	case json.RawMessage:
		if v == nil {
			return "null"
		}
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return "null" // a note that is no JSON, which the database does not store
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if strings.IndexFunc(text, invisible) < 0 {
		return text
	}
	// Inside strings, the only place they can be, escapes mean the same and do not reach a terminal.
	var escaped strings.Builder
	for _, r := range text {
		if invisible(r) {
			escaped.WriteString(escapeRune(r))
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.String()
}

// toYAML turns JSON, which is YAML already, into the form people expect, keeping the order of keys.
func toYAML(data []byte) ([]byte, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(data, &node); err != nil {
		return nil, err
	}
	setStyle(&node)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&node); err != nil {
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	if bytes.IndexFunc(b.Bytes(), hidden) < 0 {
		return b.Bytes(), nil
	}
	var escaped bytes.Buffer
	for _, r := range b.String() {
		switch {
		case !hidden(r):
			escaped.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&escaped, `\U%08x`, r)
		default:
			escaped.WriteString(escapeRune(r))
		}
	}
	return escaped.Bytes(), nil
}

// hidden is invisible but for the line breaks of the format itself.
func hidden(r rune) bool { return r != '\n' && invisible(r) }

// setStyle takes JSON's own style away, and keeps quotes where a text needs escapes.
func setStyle(node *yaml.Node) {
	node.Style = 0
	if node.Kind == yaml.ScalarNode && strings.IndexFunc(node.Value, invisible) >= 0 {
		node.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		setStyle(child)
	}
}
