package status_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/descriptors/explain"
)

// answers has a document for each replica, and one replica more that does not answer.
func answers[D any](documents ...D) (all []client.Answer[D], replicas []client.Replica) {
	replicas = make([]client.Replica, len(documents)+1)
	for i := range replicas {
		replicas[i] = client.Replica{Address: string(rune('a' + i)), OK: i < len(documents)}
	}
	for i, d := range documents {
		all = append(all, client.Answer[D]{Replica: &replicas[i], Document: d})
	}
	return all, replicas
}

func TestDocumentOfAFleet(t *testing.T) {
	start := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	away := "The store is away: failure policies decide in its place."
	all, replicas := answers(
		status.Document{
			Version: "1", Started: start.Add(time.Hour), Health: status.Health{State: "warning", Reasons: []string{"old"}},
			Traffic: status.Traffic{Counts: status.Counts[float64]{Requests: 1.1, Denied: 0.1}, Total: status.Counts[uint64]{Requests: 10, Denied: 1, Errors: 2}, ErrorsByKind: map[string]status.ErrorsOfKind{"no_rules": {Rate: .1, Total: 2}}},
			Latency: status.Latency{P50: explain.Duration(2), P99: explain.Duration(3)},
			Store:   status.Store{Backend: "redis", State: "ok", Servers: []status.Server{{Address: "r1", Role: "main", Breaker: "closed"}}},
			Rules:   status.InForce{Hash: "1"},
		},
		status.Document{
			Version: "1", Started: start, Health: status.Health{State: "critical", Reasons: []string{away, "old"}},
			Traffic: status.Traffic{Counts: status.Counts[float64]{Requests: 2.2, Errors: 1}, Total: status.Counts[uint64]{Requests: 20}, ErrorsByKind: map[string]status.ErrorsOfKind{"no_rules": {Rate: .2, Total: 3}, "caller_gone": {Total: 4}}},
			Latency: status.Latency{P50: explain.Duration(1), P99: explain.Duration(4)},
			Store: status.Store{Backend: "redis", State: "away", Servers: []status.Server{
				{Address: "r1", Role: "main", Breaker: "open"}, {Address: "r1", Role: "per-second", Breaker: "closed"},
			}},
			Rules: status.InForce{Hash: "2", Refused: "a tab"}, ShadowMode: true,
		})
	got := status.MergeDocuments(all, replicas)
	want := status.Document{
		Version: "1", Started: start,
		Health: status.Health{State: "critical", Reasons: []string{
			"1 of 3 replicas do not answer.", "Replicas have different rules in force.", "old", "b: " + away,
		}},
		Traffic: status.Traffic{Counts: status.Counts[float64]{Requests: 3.3, Denied: 0.1, Errors: 1}, Total: status.Counts[uint64]{Requests: 30, Denied: 1, Errors: 2}, ErrorsByKind: map[string]status.ErrorsOfKind{"no_rules": {Rate: .3, Total: 5}, "caller_gone": {Total: 4}}},
		Latency: status.Latency{P50: explain.Duration(1), P99: explain.Duration(4), Replica: "b"},
		Store: status.Store{Backend: "redis", State: "away", PolicyDecides: "some", Servers: []status.Server{
			{Address: "r1", Role: "main", Breaker: "open"}, {Address: "r1", Role: "per-second", Breaker: "closed"},
		}},
		Rules: status.InForce{Hash: "1", Refused: "a tab"}, ShadowMode: true, Differ: true,
		Replicas: []client.Replica{{Address: "a", OK: true, Hash: "1"}, {Address: "b", OK: true, Hash: "2"}, {Address: "c"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// A state that several replicas had at the same time is one.
func TestStatesThatFleetsHad(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	all, replicas := answers(
		status.Document{Health: status.Health{Was: []status.Was{{State: "warning", From: at(30), Until: at(40)}, {State: "critical", From: at(20), Until: at(30), Reasons: []string{"away"}}}}},
		status.Document{Health: status.Health{Was: []status.Was{{State: "critical", From: at(21), Until: at(31)}, {State: "critical", From: at(1), Until: at(2)}}}})
	want := []status.Was{{State: "warning", From: at(30), Until: at(40)}, {State: "critical", From: at(20), Until: at(31), Reasons: []string{"away"}}, {State: "critical", From: at(1), Until: at(2)}}
	if got := status.MergeDocuments(all, replicas).Health.Was; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestHistoryOfAFleet: histories are added second by second, whichever replica is ahead.
func TestHistoryOfAFleet(t *testing.T) {
	at := time.Unix(1000, 0)
	early := func() *status.History {
		return &status.History{Until: at, Counts: status.Counts[[]uint32]{Requests: []uint32{1, 2, 3}, Denied: []uint32{0, 0, 1}, Errors: []uint32{0, 1, 0}}, Percentiles: status.Percentiles[[]int64]{P50: []int64{5, 5, 5}, P99: []int64{6, 9, 6}}}
	}
	late := func() *status.History {
		return &status.History{Until: at.Add(time.Second), Counts: status.Counts[[]uint32]{Requests: []uint32{10, 20, 30}, Denied: []uint32{1, 1, 1}, Errors: []uint32{0, 0, 0}}, Percentiles: status.Percentiles[[]int64]{P50: []int64{4, 6, 4}, P99: []int64{7, 7, 7}}}
	}
	want := &status.History{Until: at.Add(time.Second), Counts: status.Counts[[]uint32]{Requests: []uint32{12, 23, 30}, Denied: []uint32{1, 2, 1}, Errors: []uint32{1, 0, 0}}, Percentiles: status.Percentiles[[]int64]{P50: []int64{5, 6, 4}, P99: []int64{9, 7, 7}}}
	for _, of := range [][2]*status.History{{early(), late()}, {late(), early()}} {
		all, replicas := answers(status.Document{History: of[0], Rates: []status.Rate{{Rule: "a", Rate: 1}}},
			status.Document{History: of[1], Rates: []status.Rate{{Rule: "b", Rate: 2}, {Rule: "a", Rate: 3, Denied: 1}}})
		got := status.MergeDocuments(all, replicas)
		if !reflect.DeepEqual(got.History, want) {
			t.Errorf("got %+v, want %+v", got.History, want)
		}
		if want := []status.Rate{{Rule: "a", Rate: 4, Denied: 1}, {Rule: "b", Rate: 2}}; !slices.Equal(got.Rates, want) {
			t.Errorf("got %+v, want %+v", got.Rates, want)
		}
	}
}

func TestRulesOfAFleet(t *testing.T) {
	row := func(path, words string, requests uint64, history ...uint32) status.ListingRule {
		return status.ListingRule{Rule: path, Line: int(requests), Limits: []status.ListingLimit{{Terms: explain.Terms{Words: words}}}, RuleCounts: status.RuleCounts{Requests: requests, Rate: 0.1, History: history}}
	}
	documents := func() []status.Listing {
		return []status.Listing{
			{Hash: "1", Total: 3, Matched: 3, Rules: []status.ListingRule{row("one", "10", 1, 1, 2), row("two", "10", 2), row("three", "10", 3)}},
			{Hash: "2", Total: 4, Matched: 4, Rules: []status.ListingRule{row("one", "10", 10, 4), row("new", "10", 5), row("two", "20", 20), row("three", "10", 30)}},
		}
	}
	all, replicas := answers(documents()...)
	all[1].Document.Rules[0].Limits[0].PolicyDecides = "some"
	got := status.MergeListings(10, all, replicas)
	type line struct {
		rule, words, replica string
		requests             uint64
	}
	var lines []line
	for _, r := range got.Rules {
		lines = append(lines, line{r.Rule, r.Limits[0].Words, r.Replica, r.Requests})
	}
	want := []line{{"one", "10", "", 11}, {"new", "10", "b", 5}, {"two", "20", "b", 20}, {"two", "10", "a", 2}, {"three", "10", "", 33}}
	if !slices.Equal(lines, want) {
		t.Errorf("got  %v\nwant %v", lines, want)
	}
	if one := got.Rules[0]; one.Rate != 0.2 || one.Limits[0].PolicyDecides != "some" || !slices.Equal(one.History, []uint32{1, 6}) {
		t.Errorf("got %+v", one)
	}
	if !got.Differ || got.Total != 4 || got.Matched != 4 || got.Replicas[0].Hash != "1" || got.Replicas[1].Hash != "2" {
		t.Errorf("got %+v", got)
	}
	all, replicas = answers(documents()[0], documents()[0])
	if got := status.MergeListings(2, all, replicas); got.Differ || len(got.Rules) != 2 || got.Rules[1].Requests != 4 {
		t.Errorf("of equal rules: got %+v", got)
	}
}
