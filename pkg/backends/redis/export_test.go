package redis

import "example.org/rls/pkg/backends"

// SlotOf is the slot of an operation's cells in a cluster.
func SlotOf(op *backends.Op) int { return slotOfOp(op) }
