// Package terminal writes colours, lines of progress and texts that are drawn anew where a person
// reads them: on a terminal, and nowhere else. It makes texts of others safe for terminals and shells.
package terminal

import (
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// size is the number of columns and of lines of a terminal, or 80 and 24 if it does not tell.
func size(file *os.File) (width, height int) {
	width, height, err := term.GetSize(int(file.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// Colors colours text. The zero value returns every text as it is.
type Colors struct{ on bool }

// ColorsFor returns the colours of text that is written to w: no colours unless w is a
// terminal, or if the variable NO_COLOR is set and not empty, or TERM is dumb.
func ColorsFor(w io.Writer) Colors {
	return Colors{Is(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Red is for failures and denials.
func (c Colors) Red(text string) string { return c.paint("31", text) }

// Green is for success and admissions.
func (c Colors) Green(text string) string { return c.paint("32", text) }

// Yellow is for warnings.
func (c Colors) Yellow(text string) string { return c.paint("33", text) }

// Bold is for headings.
func (c Colors) Bold(text string) string { return c.paint("1", text) }

// Dim is for details.
func (c Colors) Dim(text string) string { return c.paint("2", text) }

// paint sets the attributes of a text by an escape sequence (SGR of ECMA-48).
func (c Colors) paint(attributes, text string) string {
	if !c.on || text == "" {
		return text
	}
	return "\x1b[" + attributes + "m" + text + "\x1b[0m"
}

// Short is d rounded to three digits.
func Short(d time.Duration) time.Duration {
	digit := time.Duration(1)
	for digit*1000 <= d {
		digit *= 10
	}
	return d.Round(digit)
}

// plain is a text that a shell takes as it is.
var plain = regexp.MustCompile(`^[\w./:=,@%+][\w./:=,@%+-]*$`)

// Word is a text as one word of a command for a POSIX shell, in quotes where it needs them.
func Word(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Visible is s with escape sequences in place of the characters that a terminal does
// not print, so that a value of a caller can neither hide nor control anything.
func Visible(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			b.WriteString(s[:size])
		} else {
			quoted := strconv.Quote(s[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return b.String()
}
