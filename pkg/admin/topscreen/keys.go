package topscreen

import (
	"context"
	"strconv"
	"unicode/utf8"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/top"
)

// help is what the key ? shows.
var help = []string{
	"↑ ↓ j k    move the cursor",
	"Enter      explain the row: the way to its limits, and their counters",
	"g          grant hits to the row's counters",
	"r          reset the row's counters",
	"d h c      order by denied requests, by requests, by cost",
	"s          order by the share of denied requests",
	"f /        filter by a part of the rule or the key; Escape shows all rows",
	"p space    pause, and go on",
	"q          quit",
	"",
	"DENIED and HITS are requests of the last minute, COST is hits. ERROR is the largest",
	"possible overcount. LIMIT and REMAINING are those of the limit that decided last.",
}

// press handles a key, and reports whether the person quits.
func (v *View) press(key string, height int) (quit bool) {
	switch {
	case key == terminal.CtrlC:
		return true
	case v.asking != nothing:
		v.typing(key)
	case v.answer != nil:
		v.read(key, height)
	default:
		return v.choose(key, height)
	}
	return false
}

// choose handles a key above the table.
func (v *View) choose(key string, height int) (quit bool) {
	rows := v.rows(v.room(height))
	at := v.at(rows)
	move := func(to int) {
		if len(rows) > 0 {
			v.cursor = idOf(&rows[min(max(0, to), len(rows)-1)])
		}
	}
	orders := map[string]string{"d": "denied", "h": "hits", "c": "cost"}
	switch key {
	case "q", "Q":
		return true
	case terminal.Up, "k":
		move(at - 1)
	case terminal.Down, "j":
		move(at + 1)
	case terminal.PageUp:
		move(0)
	case terminal.PageDown:
		move(len(rows) - 1)
	case "d", "h", "c":
		v.By, v.byShare = orders[key], false
	case "s":
		v.byShare = true
	case "p", " ":
		v.paused = !v.paused
	case "f", "/":
		v.asking, v.typed, v.filter = forFilter, "", ""
	case terminal.Escape:
		v.filter = ""
	case "?":
		v.answer, v.from = help, 0
	case terminal.Enter, "g", "r":
		if len(rows) == 0 {
			return false
		}
		v.about, v.typed = rows[at], ""
		switch key {
		case "g":
			v.asking = forHits
		case "r":
			v.asking = forReset
		default:
			v.do(v.Source.Explain)
		}
	}
	return false
}

// read handles a key above an answer.
func (v *View) read(key string, height int) {
	switch key {
	case terminal.Up, "k":
		v.from = max(0, v.from-1)
	case terminal.Down, "j":
		v.from = max(0, min(v.from+1, len(v.answer)-(height-2)))
	default:
		v.answer = nil
	}
}

// typing handles a key of the answer to a question.
func (v *View) typing(key string) {
	switch asked := v.asking; {
	case key == terminal.Escape:
		v.asking, v.typed = nothing, ""
		if asked == forFilter {
			v.filter = ""
		}
	case key == terminal.Enter:
		v.asking = nothing
		hits, err := strconv.ParseInt(v.typed, 10, 64)
		switch {
		case asked == forReset && v.typed == "y":
			v.do(v.Source.Reset)
		case asked == forHits && err == nil && hits > 0:
			v.do(func(ctx context.Context, row *top.Row) (string, error) { return v.Source.Grant(ctx, row, hits) })
		case asked == forHits:
			v.answer = []string{"nothing is granted: want a whole number of hits, at least 1"}
		}
	case key == terminal.Backspace:
		_, last := utf8.DecodeLastRuneInString(v.typed)
		v.typed = v.typed[:len(v.typed)-last]
	case len(key) > 0 && key[0] >= ' ':
		v.typed += key
	}
	if v.asking == forFilter {
		v.filter = v.typed
	}
}
