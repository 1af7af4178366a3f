package admin_test

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/admin"
)

// values are the values of the first entries of denials.
func values(t *testing.T, a answered) (all []string) {
	t.Helper()
	rows, isList := a.json["denials"].([]any)
	if a.code != 200 || !isList {
		t.Fatalf("got %d %s", a.code, a.text)
	}
	for _, row := range rows {
		all = append(all, row.(map[string]any)["entries"].([]any)[0].(map[string]any)["value"].(string))
	}
	return all
}

func TestDenials(t *testing.T) {
	r := start(t, listening{})
	if got := r.ask("GET", "/v1/denials", "", bearer(readToken)); !strings.HasPrefix(got.text, `{"denials":[],"kept":0,"sampled":1,"remembered":"20`) {
		t.Errorf("without denials: got %s", got.text)
	}
	if got := r.ask("GET", "/v1/denials?group=true", "", bearer(readToken)); !strings.HasPrefix(got.text, `{"groups":[],"kept":0,"sampled":1,"remembered":"20`) {
		t.Errorf("without denials: got %s", got.text)
	}
	for _, name := range []string{"zoe", "ann", "joanna"} {
		r.charge(name, 11)
	}
	r.chargeEntry("route", "/ann", 9)
	for query, want := range map[string]string{
		"":                               "/ann joanna ann zoe",
		"?q=ann&n=2":                     "/ann joanna",
		"?rule=shop.user&since=1h":       "joanna ann zoe",
		"?q=rout&n=&since=&follow=false": "/ann",
	} {
		if got := values(t, r.ask("GET", "/v1/denials"+query, "", bearer(readToken))); strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", query, got, want)
		}
	}
	if got := r.ask("GET", "/v1/denials?rule=shop.us", "", bearer(readToken)); got.code != 404 || !strings.Contains(got.text, `did you mean \"shop.user\"?`) {
		t.Errorf("another rule: got %d %s", got.code, got.text)
	}
	got := r.ask("GET", "/v1/denials?n=1", "", bearer(readToken))
	row := got.json["denials"].([]any)[0].(map[string]any)
	at, err := time.Parse(time.RFC3339, row["time"].(string))
	if err != nil || time.Since(at) > time.Minute || row["retry_after"] == "0s" || got.json["from"] == nil {
		t.Errorf("got %s", got.text)
	}
	delete(row, "time")
	delete(row, "retry_after")
	const want = "map[cost:9 domain:shop entries:[map[key:route value:/ann]] limit:5 name: policy:counted rule:shop.route shadow:false strategy:fixed_window window:3600s words:5 per hour]"
	if fmt.Sprint(row) != want || got.json["kept"] != 4.0 || got.json["sampled"] != 1.0 {
		t.Errorf("got %v, want %s", got.text, want)
	}
	for query, want := range map[string]string{
		"?n=10001": "want 1 to 10000", "?n=-1": "want 1 to", "?since=yesterday": "since is", "?since=-1h": "since is", "?follow=true": "Accept: text/event-stream", "?follow=yes": "want true or false",
	} {
		if got := r.ask("GET", "/v1/denials"+query, "", bearer(readToken)); got.code != 400 || !strings.Contains(got.text, want) {
			t.Errorf("%s: got %d %s", query, got.code, got.text)
		}
	}
	for _, query := range []string{"?follow=true&since=1h", "?follow=true&n=1", "?follow=true&fleet=true"} {
		if got := r.ask("GET", "/v1/denials"+query, "", bearer(readToken), with("Accept", "text/event-stream")); got.code != 400 {
			t.Errorf("%s: got %d %s", query, got.code, got.text)
		}
	}

	off := start(t, listening{change: func(o *admin.Options) { o.Denials = nil }})
	for _, accept := range []string{"*/*", "text/event-stream"} {
		if got := off.ask("GET", "/v1/denials", "", bearer(readToken), with("Accept", accept)); got.code != 501 || !strings.Contains(got.text, "DENIALS_KEEP=0") {
			t.Errorf("remembers nothing: got %d %s", got.code, got.text)
		}
	}
}

// A stream of denials begins at once, and has the new ones.
func TestFollowedDenials(t *testing.T) {
	r := start(t, listening{})
	r.charge("before", 11)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	response := r.send(ctx, "GET", "/v1/denials?follow=true&q=ann", "", bearer(readToken), with("Accept", "text/event-stream"))
	defer response.Body.Close()
	for _, name := range []string{"bob", "ann"} {
		r.charge(name, 11)
	}
	events := bufio.NewScanner(response.Body)
	text := ""
	for text == "" && events.Scan() {
		if strings.HasPrefix(events.Text(), "data: ") {
			text = events.Text()
		}
	}
	if !strings.HasPrefix(text, `data: {"time":"`) || !strings.Contains(text, `"value":"ann"`) {
		t.Errorf("got %q, %v", text, events.Err())
	}
	r.writeTokens(strings.Replace(tokenFile, readToken, "another-token-of-bob", 1))
	for events.Scan() { // until the stream ends with its token
	}
	if ctx.Err() != nil {
		t.Error("the stream goes on without a token")
	}
}

// The denials of all replicas are in the order of time.
func TestFleetsDenials(t *testing.T) {
	b := start(t, listening{})
	a := inFleet(t, listening{}, b.addr(), "127.0.0.1:OWN")
	for i, on := range []*rig{a, b, a} {
		on.charge(fmt.Sprint("ann", i), 11)
	}
	got := a.ask("GET", "/v1/denials?fleet=true&n=2&q=ann", "", bearer(readToken))
	if want := "ann2 ann1"; strings.Join(values(t, got), " ") != want || got.json["kept"] != 3.0 || got.json["sampled"] != 1.0 {
		t.Errorf("got %s, want %s", got.text, want)
	}
	second := got.json["denials"].([]any)[1].(map[string]any)
	oldest := a.ask("GET", "/v1/denials", "", bearer(readToken)).json["from"]
	if second["replica"] != b.addr() || got.json["from"] != oldest || len(replicasOf(t, got)) != 2 {
		t.Errorf("got %s, want %s of %s, from %v", got.text, "ann1", b.addr(), oldest)
	}
}
