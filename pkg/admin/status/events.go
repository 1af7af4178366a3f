package status

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// made is JSON that was made in one second for all who ask in it.
type made struct {
	at   int64
	page page // of rules
	json []byte
}

// once makes JSON of a value unless that was done in this second.
func (s *Status) once(m *made, asked page, value func(now time.Time) any) []byte {
	now := time.Now()
	s.making.Lock()
	defer s.making.Unlock()
	if m.at != now.Unix() || m.page != asked {
		*m = made{now.Unix(), asked, marshal(value(now))}
	}
	return m.json
}

func marshal(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // the types have no values that JSON lacks
	}
	return text
}

// JSON is a [Document], which has Rates and the History of a range, one of [Ranges], unless the range
// is 0. Each of these forms is made at most once a second.
func (s *Status) JSON(history time.Duration) []byte {
	return s.once(s.documents[history], page{}, func(now time.Time) any {
		d := s.describe(now)
		if history > 0 {
			d.History, d.Rates = s.columns(history), s.rates(now)
		}
		return d
	})
}

// RulesJSON is a [Listing]: of the rules that have all words of q, in any case, n rules
// after the first offset. Callers that ask for the same page share a document for a second.
func (s *Status) RulesJSON(q string, n, offset int) []byte {
	asked := page{q, n, offset}
	return s.once(&s.listOfRules, asked, func(now time.Time) any { return s.listing(now, asked) })
}

// update is an event for all listeners.
type update struct {
	json  []byte        // nil ends the listeners
	newer chan struct{} // closed when there is a newer update, or none will be
}

func newUpdate(json []byte) *update { return &update{json: json, newer: make(chan struct{})} }

// publish gives all listeners an event.
func (s *Status) publish(json []byte) { close(s.latest.Swap(newUpdate(json)).newer) }

// Watch gives a [Document] with the history as JSON, and then one a second with the newest
// second, until ctx or Run ends. A listener that is too slow misses events. The texts are
// shared by all listeners and must not be changed.
func (s *Status) Watch(ctx context.Context) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s.listeners.Add(1)
		defer s.listeners.Add(-1)
		at := s.latest.Load()
		for text := s.JSON(Ranges["15m"]); yield(text); text = at.json {
			select {
			case <-ctx.Done():
				return
			case <-at.newer:
			}
			if at = s.latest.Load(); at.json == nil {
				return
			}
		}
	}
}
