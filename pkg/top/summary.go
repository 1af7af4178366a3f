package top

import (
	"container/heap"
	"slices"
	"strings"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// counts has a count for each slot.
type counts [slots]int64

func (c *counts) sum() (n int64) {
	for _, v := range c {
		n += v
	}
	return n
}

// node is a counter that is kept in at least one order: a descriptor, or all descriptors whose
// values share a counter.
type node struct {
	hash      uint64
	domain    string
	rule      string              // path; "" if no rule matched
	entries   []descriptors.Entry // with the pattern in place of a shared value
	cut       bool                // bytes of domain or entries were left out
	position  [orders]int32       // in the summary's heap, counted from 1; 0: not kept
	counted   [orders]counts      // since the node was made
	inherited [orders]int64       // Space-Saving's error: the count inherited from the evicted node
	bits      [slots]uint8        // of the highest cost that one request has added in each slot
	evicted   [orders]int8        // the slot of the eviction, with which the inherited count is forgotten
	sum       [orders]int64       // counted and inherited, as the summary's heap is ordered
	// Of the limit that decided the last request: the one that denied with the longest wait, else
	// the one with the least remaining. remaining is below 0 if no limit was decided.
	limit     *descriptors.Limit
	plan      string // that the limit is from
	key       string // in the store
	remaining int64
}

const (
	// maxBytes bounds the bytes of a node's keys and values.
	maxBytes = 384
	// maxKey bounds the bytes of the key of its counter.
	maxKey = 512
)

func newNode(hash uint64, domain string, v *service.Verdict, shared []descriptors.Naming) *node {
	n := &node{hash: hash, domain: strings.Clone(descriptors.Shortened(domain, maxBytes/4))}
	if v.Rule != nil {
		n.rule = v.Rule.Path
	}
	entries := v.Entries
	for i := range shared {
		if i < len(entries) {
			named := descriptors.Named(shared, i, entries[i])
			if named != entries[i] {
				entries = slices.Clone(entries)
				entries[i] = named
			}
		}
	}
	n.entries = descriptors.AppendShortened(make([]descriptors.Entry, 0, min(len(entries), descriptors.MaxShortened)), entries, maxBytes)
	n.cut = n.domain != domain || !slices.Equal(n.entries, entries)
	for i, e := range n.entries {
		n.entries[i] = descriptors.Entry{Key: strings.Clone(e.Key), Value: strings.Clone(e.Value)}
	}
	return n
}

// decidedBy keeps what the limit that decided the last request was left with.
func (n *node) decidedBy(v *service.Verdict, stored func(string) string) {
	n.limit, n.plan, n.remaining = v.Limit, v.Plan(), -1
	n.key = descriptors.Shortened(stored(v.Key), maxKey)
	if v.Decided {
		n.remaining = v.Left()
	}
}

func (n *node) kept() bool { return n.position != [orders]int32{} }

// forget empties a slot. The heaps are put right by settle.
func (n *node) forget(at int) {
	n.bits[at] = 0
	for order := range n.counted {
		n.counted[order][at] = 0
		if int(n.evicted[order]) == at {
			n.inherited[order] = 0
		}
	}
}

// summary keeps the highest nodes of one order. It is a heap with the lowest first.
type summary struct {
	order Order
	max   int
	nodes []*node
}

// raise orders the heap after the count of n has grown. If n evicts another node, raise
// returns that node, and n inherits its count in the slot at.
func (s *summary) raise(n *node, at int) (gone *node) {
	kept := n.position[s.order] > 0
	if !kept && len(s.nodes) >= s.max {
		gone = heap.Pop(s).(*node)
		n.inherited[s.order] += gone.sum[s.order]
		n.evicted[s.order] = int8(at)
	}
	n.sum[s.order] = s.total(n)
	if kept {
		heap.Fix(s, int(n.position[s.order])-1)
	} else {
		heap.Push(s, n)
	}
	return gone
}

func (s *summary) total(n *node) int64 { return n.counted[s.order].sum() + n.inherited[s.order] }

// settle orders the heap anew after slots were emptied. It removes the nodes that have no
// counts left.
func (s *summary) settle() {
	s.nodes = slices.DeleteFunc(s.nodes, func(n *node) bool {
		if n.sum[s.order] = s.total(n); n.sum[s.order] > 0 {
			return false
		}
		n.position[s.order] = 0
		return true
	})
	for i, n := range s.nodes {
		n.position[s.order] = int32(i + 1)
	}
	heap.Init(s)
}

// Len and the methods below implement [heap.Interface].
func (s *summary) Len() int           { return len(s.nodes) }
func (s *summary) Less(i, j int) bool { return s.nodes[i].sum[s.order] < s.nodes[j].sum[s.order] }
func (s *summary) Swap(i, j int) {
	s.nodes[i], s.nodes[j] = s.nodes[j], s.nodes[i]
	s.nodes[i].position[s.order], s.nodes[j].position[s.order] = int32(i+1), int32(j+1)
}

func (s *summary) Push(x any) {
	n := x.(*node)
	s.nodes = append(s.nodes, n)
	n.position[s.order] = int32(len(s.nodes))
}

func (s *summary) Pop() any {
	last := len(s.nodes) - 1
	n := s.nodes[last]
	s.nodes[last], s.nodes = nil, s.nodes[:last]
	n.position[s.order] = 0
	return n
}
