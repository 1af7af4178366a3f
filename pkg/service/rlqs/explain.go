package rlqs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
)

// Explained says what Envoys are assigned of a descriptor.
type Explained struct {
	// Assignment is what a bucket is told that nobody reports yet: token_bucket, allow_all,
	// deny_all, or none while the store is away. The fields below it are those of a token bucket.
	Assignment    string `json:"assignment"`
	MaxTokens     uint32 `json:"max_tokens,omitempty"`
	TokensPerFill uint32 `json:"tokens_per_fill,omitempty"`
	FillInterval  int64  `json:"fill_interval_seconds,omitempty"`
	// Buckets are those on the streams of this process, and Assigned the hits per second that
	// they may let pass until their next reports.
	Buckets  int64   `json:"buckets"`
	Assigned float64 `json:"assigned_hits_per_second"`
}

// String is e for people.
func (e *Explained) String() string {
	text := strings.ReplaceAll(e.Assignment, "_", " ")
	if e.MaxTokens > 0 {
		text = fmt.Sprintf("%s of %d, and %d each %d s", text, e.MaxTokens, e.TokensPerFill, e.FillInterval)
	}
	return fmt.Sprintf("a new bucket of an Envoy: %s; %d buckets here, assigned %.1f hits/s", text, e.Buckets, e.Assigned)
}

// Explain looks at the limits of a descriptor of the domain, and assigns nothing. Its errors have
// a gRPC status.
func (s *Server) Explain(ctx context.Context, domain string, entries []descriptors.Entry) (*Explained, error) {
	entries = sorted(slices.Clone(entries))
	quota, err := s.Service.NewQuota(domain, entries)
	quota.Named = true
	if err == nil {
		err = s.Service.Report(ctx, s.TTL, []service.Usage{{Quota: &quota, Unasked: true}})
	}
	if err != nil {
		return nil, envoy.Error(err)
	}
	e := &Explained{Assignment: "none"}
	if quota.Share.Kind != service.Unchanged {
		a := assignmentOf(&quota.Share)
		e.Assignment, e.MaxTokens, e.TokensPerFill, e.FillInterval = string(a.kind), a.maxTokens, a.perFill, a.fill
	}
	e.Buckets, e.Assigned = s.Assigned(domain, entries)
	return e, nil
}

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
