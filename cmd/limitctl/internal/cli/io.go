package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/term"
)

// IOStreams is what a command reads and writes, and what it needs to know about it: people get tables
// and questions, pipes get neither.
type IOStreams struct {
	In     io.Reader
	Out    io.Writer // data, and nothing else
	ErrOut io.Writer // everything else

	color  bool
	errTTY bool
	inTTY  bool
	outTTY bool
	size   func() (width, height int) // of the terminal that Out is
}

// systemIO returns the streams of the process.
func systemIO() *IOStreams {
	return &IOStreams{
		In:     os.Stdin,
		Out:    os.Stdout,
		ErrOut: os.Stderr,
		errTTY: term.IsTerminal(int(os.Stderr.Fd())),
		inTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		outTTY: term.IsTerminal(int(os.Stdout.Fd())),
		size: func() (int, int) {
			width, height, err := term.GetSize(int(os.Stdout.Fd()))
			if err != nil || width <= 0 || height <= 0 {
				return 80, 24
			}
			return width, height
		},
	}
}

// testIO returns streams that are buffers, as a pipe or as a terminal of 80 columns.
func testIO(tty bool) (streams *IOStreams, in, out, errOut *bytes.Buffer) {
	in, out, errOut = &bytes.Buffer{}, &bytes.Buffer{}, &bytes.Buffer{}
	return &IOStreams{
		In:     in,
		Out:    out,
		ErrOut: errOut,
		errTTY: tty,
		inTTY:  tty,
		outTTY: tty,
		size:   func() (int, int) { return 80, 24 },
	}, in, out, errOut
}

// canAsk tells whether there is somebody to answer. A question goes to ErrOut, so Out may be a file.
func (s *IOStreams) canAsk() bool { return s.inTTY && s.errTTY }

// setColor decides about colour: what was typed wins, then the environment's wish for none, then its
// wish for some, then whether a person is looking. See no-color.org and bixense.com/clicolors.
func (s *IOStreams) setColor(flag string, getenv func(string) string) {
	switch {
	case flag == "always":
		s.color = true
	case flag == "never", getenv("NO_COLOR") != "", getenv("TERM") == "dumb":
		s.color = false
	case getenv("CLICOLOR_FORCE") != "" && getenv("CLICOLOR_FORCE") != "0":
		s.color = true
	default:
		s.color = s.outTTY && getenv("CLICOLOR") != "0"
	}
}

const (
	red    = "31"
	green  = "32"
	yellow = "33"
	plain  = "39" // the terminal's own; of the same length as the others, see writeTable
)

// paint colours text. Colour only ever repeats what a word and a sign already say.
func (s *IOStreams) paint(color, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// isClosedPipe tells the error of writing to a pipe whose reader has seen enough, such as head -1.
func isClosedPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
