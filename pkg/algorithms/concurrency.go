package algorithms

import (
	"fmt"

	"example.org/rls/pkg/backends"
)

// slots is the strategy concurrency, which bounds how many hits are under way at once. A hit
// takes a slot, and a refund gives one back, the oldest first. A slot that nobody gives back
// ends a window after its hit.
var slots = row{
	name: "concurrency",
	kind: backends.List,
	tag:  "cc",
	prepare: func(l *Limit) error {
		if l.Requests > MaxLogRequests {
			return &SpecError{"requests_per_unit", fmt.Sprintf("concurrency has at most %d slots", MaxLogRequests)}
		}
		l.cell.Oldest = true
		return nil
	},
	plan:  planLog,
	judge: judgeLog,
}
