package rlqs

import (
	"slices"

	"example.org/rls/pkg/descriptors"
)

// Assigned returns the buckets of a descriptor, and the hits per second that they are assigned
// together.
func (s *Server) Assigned(domain string, entries []descriptors.Entry) (buckets int64, perSecond float64) {
	id := descriptors.AppendID(nil, domain, sorted(slices.Clone(entries)), nil)
	s.each(func(st *stream) {
		if b := st.buckets[string(id)]; b != nil {
			buckets++
			perSecond += b.perSecond
		}
	})
	return buckets, perSecond
}
