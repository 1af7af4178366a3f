package yaml

import (
	"bytes"
	"regexp"
	"time"
)

// shadowComment finds the date of a comment about a rule in shadow mode.
var shadowComment = regexp.MustCompile(`#.*\bshadow since:? +(\d{4}-\d{2}-\d{2})\b`)

// shadowSince returns the dates of these comments, by the number of the line that
// each of them is about: its own line, or the line after it and the comments that
// follow if it stands alone.
func shadowSince(content []byte) map[int]time.Time {
	if !bytes.Contains(content, []byte("shadow since")) {
		return nil
	}
	dates := map[int]time.Time{}
	var above time.Time // the date of the comments right above the line
	number := 0
	for line := range bytes.Lines(content) {
		number++
		own := bytes.TrimSpace(line)
		var date time.Time
		if found := shadowComment.FindSubmatch(own); found != nil {
			date, _ = time.Parse(time.DateOnly, string(found[1]))
		}
		switch {
		case len(own) == 0:
			above = time.Time{}
		case own[0] == '#':
			if !date.IsZero() {
				above = date
			}
		default:
			if date.IsZero() {
				date = above
			}
			if !date.IsZero() {
				dates[number] = date
			}
			above = time.Time{}
		}
	}
	return dates
}
