// Package operate inspects and changes the cells of a service for operators: it explains a
// request, reads the cells of its limits, resets them and grants hits to them, and resets the
// cells of all values of a rule.
//
// It plans operations as package service does, so it finds the cells that requests are counted in.
// It charges nothing, and observers are told nothing.
package operate

import (
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/grants"
)

// Operator inspects and changes the cells of a service, and remembers the grants to them. It is safe
// for concurrent use.
type Operator struct {
	*service.Service
	cfg    *service.Config
	stored func(key string) string
	grants oneOffs
	keeper *grants.Keeper // nil: the store keeps no grants until a time
}

// New returns an operator of a service. storedKey is the name under which its store keeps a key, such
// as redis.StoredKey, or [strings.Clone] if it keeps every key as it is.
func New(s *service.Service, storedKey func(key string) string) *Operator {
	return &Operator{Service: s, cfg: s.Config(), stored: storedKey}
}

// Keep has o make grants until a time, which k knows.
func (o *Operator) Keep(k *grants.Keeper) { o.keeper = k }

// Question is what operators ask about: a request, or a pool in its place.
type Question struct {
	service.Request
	// Pool is the name of a pool of the domain that is asked about in place of Descriptors; else "".
	Pool string `json:"pool,omitempty"`
	// Seen has, by the index of a descriptor, the time at which an earlier request brought its Limit;
	// without it this request does.
	Seen map[int]time.Time `json:"-"`
}

// About is a question about descriptors of a domain.
func About(domain string, all ...service.Descriptor) Question {
	return Question{Request: service.Request{Domain: domain, Descriptors: all}}
}

// storedKey is the name under which the store keeps a key, for people.
func (o *Operator) storedKey(key string) string { return descriptors.Printable(o.stored(key)) }
