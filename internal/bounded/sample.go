package bounded

import (
	"math/rand/v2"
	"sync/atomic"
)

// Sample picks events of a busy sequence at random, so that about as many are looked at as are
// wanted, at any rate of events. Each stands for some that were left out, too.
//
// Weight may be called at any time. The caller of the other methods holds a lock.
type Sample struct {
	most   int
	random func() uint32
	every  atomic.Uint32 // one of so many events is looked at; a power of two
	looked int           // events since every was set
	stood  int64         // for so many events, since Renew
}

// NewSample returns a Sample that wants most events from one Renew to the next, 1 s later, and first
// picks all. random draws the sample; nil is math/rand/v2.
func NewSample(most int, random func() uint32) *Sample {
	s := &Sample{most: most, random: random}
	if random == nil {
		s.random = rand.Uint32
	}
	s.every.Store(1)
	return s
}

// Weight is the number of events that the next one stands for; 0 leaves it out.
func (s *Sample) Weight() uint32 {
	every := s.every.Load()
	if every > 1 && s.random()&(every-1) != 0 {
		return 0
	}
	return every
}

// Largest is the largest weight of the next event.
func (s *Sample) Largest() uint32 { return s.every.Load() }

// Looked notes that an event with a weight is looked at. A crowd, which may be over soon, halves the
// share of events that are picked.
func (s *Sample) Looked(weight uint32) {
	s.looked++
	s.stood += int64(weight)
	if s.looked > s.most {
		s.set(weight * 2)
	}
}

// Renew sets the share of events that are picked by the number of events a second since the last
// Renew, so many seconds ago.
func (s *Sample) Renew(seconds float64) {
	every := uint32(1)
	for float64(s.stood)/float64(every) > float64(s.most)*seconds && every < maxWeight {
		every *= 2
	}
	s.set(every)
	s.stood = 0
}

const maxWeight = 1 << 16

func (s *Sample) set(every uint32) {
	s.every.Store(min(every, maxWeight))
	s.looked = 0
}
