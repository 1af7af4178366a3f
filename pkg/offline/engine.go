// Package offline decides requests without a server: rules, the memory store and a
// clock that its caller moves. Tests of rules, the replay of a log, coverage and
// explanations of rule files use it.
//
// It decides by pkg/service, so a decision is the one that a running service makes
// with the same rules at the same time.
package offline

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

// Engine decides requests at given times. Its clock begins at the Unix epoch.
//
// An engine is for one goroutine at a time. Requests may be divided among several engines only
// if requests that count in the same cell, and all descriptors of one request, come to the same
// engine.
type Engine struct {
	service *service.Service
	store   *memory.Store
	now     int64 // µs since the Unix epoch
}

// New returns an engine with empty cells for the rules of tree. maxKeys, at least 1, bounds the
// number of cells, of which one costs about 100 bytes. See [Engine.Evicted].
func New(tree *descriptors.Tree, maxKeys int) *Engine {
	e := &Engine{now: math.MinInt64}
	var err error
	if e.store, err = memory.New(memory.Options{MaxKeys: maxKeys, Now: e.clock}); err != nil {
		panic(err) // maxKeys is out of range
	}
	e.service = service.New(service.Config{Store: e.store})
	e.service.SetTree(tree)
	return e
}

// clock is the time in µs since the Unix epoch.
func (e *Engine) clock() int64 { return max(e.now, 0) }

// At moves the clock to t. Earlier times than the clock's change nothing, and times
// before the Unix epoch stand for it.
func (e *Engine) At(t time.Time) { e.now = max(e.now, t.UnixMicro()) }

// Decide decides r and charges it. It does not wait in a queue, and the delay of a
// request does not move the clock. The caller may release the outcome. The error says
// why a service would refuse the request.
func (e *Engine) Decide(r *service.Request) (*service.Outcome, error) {
	return e.service.Evaluate(context.Background(), r)
}

// Explain tells how the engine comes to the limits of r, with the states of their
// cells. It charges nothing. It has the errors of Decide.
func (e *Engine) Explain(r *service.Request) (explain.Document, error) {
	about := &operate.Question{Request: *r}
	doc, err := operate.New(e.service, strings.Clone).Inspect(context.Background(), about, operate.Explain)
	for i := range doc.Descriptors {
		for _, l := range doc.Descriptors[i].Limits {
			if l.State != nil {
				l.Policy = "" // the memory store is never away
			}
		}
	}
	return doc, err
}

// Reset empties all cells and sets the clock back, so that At may take any time.
func (e *Engine) Reset() {
	e.store.Clear()
	e.now = math.MinInt64
}

// Evicted is the number of cells that were lost because there were too many. Decisions are exact while it is 0.
func (e *Engine) Evicted() uint64 { return e.store.Evicted() }

// Rules returns every rule, unlimited ones too, in the order of their files and lines.
func (e *Engine) Rules() []*descriptors.Rule {
	var list []*descriptors.Rule
	e.service.Tree().Each(func(_ *descriptors.Domain, r *descriptors.Rule) { list = append(list, r) })
	slices.SortFunc(list, func(a, b *descriptors.Rule) int {
		return cmp.Or(a.Pos.Compare(b.Pos), cmp.Compare(a.Path, b.Path))
	})
	return list
}
