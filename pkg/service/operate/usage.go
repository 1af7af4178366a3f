package operate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
)

// Used is the use of one counter at one moment.
type Used struct {
	Domain  string              `json:"domain"`
	Entries []descriptors.Entry `json:"entries"` // as people are told them
	Rule    string              `json:"rule"`    // path
	Name    string              `json:"name"`    // of the limit
	Plan    string              `json:"plan,omitempty"`
	Used    int64               `json:"used"`  // hits
	Limit   uint32              `json:"limit"` // requests_per_unit
	// Share is Used ÷ the hits that the counter holds, such as a burst: 1 is all of them.
	Share float64          `json:"share"`
	Reset explain.Duration `json:"reset"` // as [explain.Cell] has it
	// Replica is the address of the process that counts it; only in the answer of a fleet.
	Replica string `json:"replica,omitempty"`
}

// UsagePage is a part of the counters of a rule.
type UsagePage struct {
	Rows   []Used `json:"rows"`
	Cursor string `json:"cursor,omitempty"` // where the next page begins; "" behind the last one
	// Hidden counts the keys of the domain that were looked at and that the store has shortened, so that
	// they do not tell their rule.
	Hidden int64 `json:"hidden"`
}

const (
	// No page looks for more keys after scanFor, and none takes longer than scanWithin.
	scanFor    = 600 * time.Millisecond
	scanWithin = 2 * time.Second
	// maxScan bounds the keys of one call of the store.
	maxScan = 1000
)

// Usage reads a page of at most n counters of a rule that have a Share of at least above, behind a cursor
// that the page before has; "" is the first page. A page may have fewer, or none, and a cursor: it
// ends after 0.6 s. A counter that is there from the first page to the last comes in one of them, and
// while keys are only added none comes twice. If one bucket of a Redis hash table has more than n
// counters, so has its page.
//
// The errors are those of [Operator.ResetMatching], and Aborted if the cursor has no meaning any more.
func (o *Operator) Usage(ctx context.Context, rule string, above float64, n int, cursor string) (page UsagePage, err error) {
	page.Rows = []Used{}
	cells, err := o.ofRule("", rule)
	if err != nil {
		return page, err
	}
	scanner, err := backends.ScannerOf(o.cfg.Store)
	if err != nil {
		return page, service.Errorf(codes.Unimplemented, "%v", err)
	}
	prefixes := slices.Clone(cells.prefixes)
	for _, prefix := range cells.prefixes { // of shortened keys, as backends.TextKey has them
		if short := strings.ReplaceAll(prefix, "{", "_"); !slices.Contains(prefixes, short) {
			prefixes = append(prefixes, short)
		}
	}
	at, from := 0, ""
	if _, wrong := fmt.Sscanf(cursor, "%d", &at); cursor != "" && (wrong != nil || at < 0 || at >= len(prefixes)) {
		return page, errCursor
	}
	_, from, _ = strings.Cut(cursor, "/")
	ctx, cancel := context.WithTimeout(ctx, scanWithin)
	defer cancel()
	for begun, look := time.Now(), min(n, maxScan); ; {
		keys, next, err := scanner.Page(ctx, prefixes[at], from, look)
		if err != nil {
			return page, scanError(ctx, err)
		}
		rows, err := cells.used(ctx, keys, above)
		if err != nil {
			return page, err
		}
		if len(page.Rows)+len(rows) > n && (look > 1 || len(page.Rows) > 0) {
			if look == 1 {
				return page, nil // from here on
			}
			look = max(1, look/8) // again, for fewer
			continue
		}
		page.Rows = append(page.Rows, rows...)
		for _, key := range keys {
			if !algorithms.IsReservation(key) && backends.IsShortened(strings.TrimPrefix(key, o.cfg.KeyPrefix)) {
				page.Hidden++
			}
		}
		if from = next; next == "" {
			at++
		}
		if page.Cursor = ""; at == len(prefixes) {
			return page, nil
		}
		page.Cursor = fmt.Sprintf("%d/%s", at, from)
		if len(page.Rows) >= n || time.Since(begun) > scanFor {
			return page, nil
		}
		if look = min(2*look, maxScan); len(rows) > 0 {
			look = min(look, n-len(page.Rows))
		}
	}
}

var errCursor = service.Errorf(codes.Aborted,
	"the cursor has no meaning any more: a server of the store has started anew or was promoted; begin without a cursor")

// scanError is the error of a page that the store did not give.
func scanError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, backends.ErrMoved):
		return errCursor
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	}
	return service.Errorf(codes.Unavailable, "the store cannot list its keys: %v", err)
}

// used reads the cells of the rule at some keys.
func (f *ruleCells) used(ctx context.Context, keys []string, above float64) (rows []Used, err error) {
	for cells := range slices.Chunk(f.among(keys), maxBatch) {
		if rows, err = f.appendUsed(ctx, rows, cells, above); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// appendUsed appends the use of cells, those of limits alone, and of a Share of at least above.
func (o *Operator) appendUsed(ctx context.Context, rows []Used, cells []*cell, above float64) ([]Used, error) {
	cells = slices.DeleteFunc(cells, func(c *cell) bool { return c.of != nil })
	o.look(ctx, cells)
	for _, c := range cells {
		if c.Err != nil {
			return nil, service.Errorf(codes.Unavailable, "the store cannot tell a counter: %v", c.Err)
		}
		share := float64(c.now.Count) / float64(max(1, c.Capacity()))
		if share < above {
			continue
		}
		rows = append(rows, Used{
			Domain: c.domain, Entries: c.entries, Rule: c.Rule, Name: c.Name, Plan: c.plan,
			Used: c.now.Count, Limit: c.Requests, Share: math.Round(share*1e4) / 1e4, Reset: c.now.Reset,
		})
	}
	return rows, nil
}

// UsageOf reads the counters of a request, as Usage has them; without a limit there is none. Its errors
// are those of [Operator.Inspect], and Unavailable if the store cannot tell.
func (o *Operator) UsageOf(ctx context.Context, q *Question, above float64) ([]Used, error) {
	_, cells, err := o.find(ctx, q, View{})
	if err != nil {
		return nil, err
	}
	return o.appendUsed(ctx, nil, cells, above)
}

// SharesStore reports whether all processes with the same settings count in the same cells.
func (o *Operator) SharesStore() bool { return o.cfg.Local }
