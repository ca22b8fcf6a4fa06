package lint

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind says what a token is.
type kind int

const (
	comment kind = iota
	name         // "quoted"
	number
	symbol // one character
	text   // 'quoted', without its quotes
	word   // keyword or identifier
)

// token is a piece of SQL.
type token struct {
	depth int // of dollar quotes around it
	kind  kind
	line  int
	text  string
}

// is tells whether the token is this keyword or symbol.
func (t token) is(text string) bool {
	return (t.kind == word || t.kind == symbol) && t.text == text
}

// lex splits SQL into tokens. What is between dollar quotes is SQL too (a body), so its tokens follow
// between two symbols "$", one level deeper.
func lex(src string) []token {
	l := lexer{line: 1, src: src}
	l.run("")
	return l.tokens
}

type lexer struct {
	depth  int
	line   int
	pos    int
	src    string
	tokens []token
}

// run reads tokens up to the closing dollar quote, or the end.
func (l *lexer) run(closing string) {
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		if closing != "" && strings.HasPrefix(rest, closing) {
			return
		}
		c, size := utf8.DecodeRuneInString(rest)
		switch {
		case unicode.IsSpace(c):
			l.skip(size)
		case strings.HasPrefix(rest, "--"):
			l.emit(comment, upTo(rest, "\n"))
		case strings.HasPrefix(rest, "/*"):
			l.emit(comment, through(rest, "*/"))
		case c == '\'':
			l.quoted(size, false)
		case strings.HasPrefix(rest, "e'"), strings.HasPrefix(rest, "E'"):
			l.quoted(2, true)
		case c == '"':
			end := strings.IndexByte(rest[1:], '"') + 2
			if end < 2 {
				end = len(rest)
			}
			l.emit(name, end)
		case c == '$':
			l.dollar(rest)
		case unicode.IsDigit(c):
			l.emit(number, span(rest, isWord))
		case c == '_' || unicode.IsLetter(c):
			l.emit(word, span(rest, isWord))
		default:
			l.emit(symbol, size)
		}
	}
}

// dollar reads a dollar-quoted body, or the sign alone ($1).
func (l *lexer) dollar(rest string) {
	tag := span(rest[1:], func(c rune) bool { return c != '$' && isWord(c) }) + 2
	if tag > len(rest) || rest[tag-1] != '$' || unicode.IsDigit(rune(rest[1])) {
		l.emit(symbol, 1)
		return
	}
	quote := rest[:tag]
	l.add(symbol, "$")
	l.skip(tag)
	l.depth++
	l.run(quote)
	l.depth--
	l.add(symbol, "$")
	l.skip(min(tag, len(l.src)-l.pos))
}

// quoted reads a string whose opening takes n bytes.
func (l *lexer) quoted(n int, escapes bool) {
	rest := l.src[l.pos:]
	end := n
	for end < len(rest) && rest[end] != '\'' {
		if escapes && rest[end] == '\\' {
			end++
		}
		end++
	}
	// A doubled quote reads as two strings side by side, which makes no difference here.
	end = min(end+1, len(rest))
	l.add(text, strings.TrimSuffix(rest[n:end], "'"))
	l.skip(end)
}

// emit adds a token of n bytes.
func (l *lexer) emit(k kind, n int) {
	l.add(k, l.src[l.pos:l.pos+n])
	l.skip(n)
}

func (l *lexer) add(k kind, text string) {
	l.tokens = append(l.tokens, token{depth: l.depth, kind: k, line: l.line, text: text})
}

func (l *lexer) skip(n int) {
	l.line += strings.Count(l.src[l.pos:l.pos+n], "\n")
	l.pos += n
}

func isWord(c rune) bool { return c == '_' || c == '$' || unicode.IsLetter(c) || unicode.IsDigit(c) }

// span is the length of the prefix whose characters satisfy f.
func span(s string, f func(rune) bool) int {
	if end := strings.IndexFunc(s, func(c rune) bool { return !f(c) }); end >= 0 {
		return end
	}
	return len(s)
}

// upTo is the length before the first mark, through that with it.
func upTo(s, mark string) int {
	if i := strings.Index(s, mark); i >= 0 {
		return i
	}
	return len(s)
}

func through(s, mark string) int { return min(upTo(s, mark)+len(mark), len(s)) }
