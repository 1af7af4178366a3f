package algorithms

import (
	"strconv"

	"example.org/rls/pkg/backends"
)

// MaxPrecision is the largest number of parts of a window.
const MaxPrecision = 60

// parts is sliding_window with a precision: a log of the hits of each part of the window,
// cut from the epoch on. The running part counts whole, and so do as many parts before it as
// the window has. So no rolling window has more hits than the limit, and a hit counts for at
// most one part longer than the window.
var parts = row{
	name: slidingWindow.name,
	kind: backends.List,
	tag:  "sp",
	prepare: func(l *Limit) error {
		l.tag += strconv.Itoa(int(l.Precision)) + "-"
		l.cell.Parts = int64(l.Precision)
		return nil
	},
	plan:  planLog,
	judge: judgeLog,
}
