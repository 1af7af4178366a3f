package redis

import (
	"strconv"

	"example.org/rls/pkg/backends"
)

// SlotOf is the slot of an operation's cells in a cluster.
func SlotOf(op *backends.Op) string { return strconv.Itoa(slotOfOp(op).Server) }
