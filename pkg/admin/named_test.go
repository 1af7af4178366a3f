package admin_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/top"
)

// What top and find show of counters that values share leads to the counters: an operator copies it
// into get, explain, reset and grant.
func TestSharedCountersAreFoundByWhatTopShows(t *testing.T) {
	const shared = `domain: shop
descriptors:
- {key: ip, match: {cidr: [10.0.0.0/8, 192.168.0.0/16]}, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}
- {key: ip, match: {cidr: [192.0.2.0/24]}, mask: {ipv4: 28}, rate_limit: {unit: hour, requests_per_unit: 10}}
- {key: ip, value: "x*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}
- {key: ip, rate_limit: {unit: hour, requests_per_unit: 1000}}
`
	seen := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
	r := start(t, listening{change: func(o *admin.Options) {
		o.Limits, o.Top, o.Memories = newLimits(t, newStore(t), shared, seen), seen, []admin.Memory{seen}
	}})
	for value, want := range map[string]string{"10.1.2.3": "~cidr:10.0.0.0/8+1", "192.0.2.77": "192.0.2.64/28", "xyz": "x*"} {
		r.chargeEntry("ip", value, 12)
		var table struct {
			Rows []struct {
				Entries []descriptors.Entry
				Rule    string
			}
		}
		rows := r.ask("GET", "/v1/top?by=hits", "", bearer(readToken))
		if err := json.Unmarshal([]byte(rows.text), &table); err != nil {
			t.Fatal(err)
		}
		var told []descriptors.Entry
		for _, row := range table.Rows {
			if row.Entries[0].Value == want {
				told = row.Entries
			}
		}
		if told == nil {
			t.Fatalf("no row has %s: %s", want, rows.text)
		}
		entries, _ := json.Marshal(told)
		request := fmt.Sprintf(`{"domain":"shop","descriptors":[{"entries":%s}]`, entries)
		count := func() any {
			got := r.ask("POST", "/v1/get", request+"}", bearer(readToken))
			if got.code != 200 {
				t.Fatalf("%s: %d %s", want, got.code, got.text)
			}
			return got.json["descriptors"].([]any)[0].(map[string]any)["limits"].([]any)[0].(map[string]any)["remaining"]
		}
		if got := count(); got != 0.0 {
			t.Errorf("%s: %v remain", want, got)
		}
		explained := r.ask("POST", "/v1/explain", request+"}", bearer(readToken))
		if d := explained.json["descriptors"].([]any)[0].(map[string]any); explained.code != 200 || d["rule"] == nil || d["why"] != "" {
			t.Errorf("%s: explained as %s", want, explained.text)
		}
		if got := r.ask("POST", "/v1/grant", request+`,"hits":3}`, bearer(writeToken)); got.code != 200 || count() != 3.0 {
			t.Errorf("%s: granted %d %s", want, got.code, got.text)
		}
		if got := r.ask("POST", "/v1/reset", request+"}", bearer(writeToken)); got.code != 200 || count() != 10.0 {
			t.Errorf("%s: reset %d %s", want, got.code, got.text)
		}
		found := r.ask("GET", "/v1/find?q="+map[bool]string{true: "~cidr", false: want}[want[0] == '~'], "", bearer(readToken))
		if keys := found.json["keys"].([]any); len(keys) != 1 || len(keys[0].(map[string]any)["limits"].([]any)) != 1 {
			t.Errorf("%s: found %s", want, found.text)
		}
	}
	// A request with such a text as its value has nothing of the counter.
	r.chargeEntry("ip", "~cidr:10.0.0.0/8+1", 5)
	got := r.ask("POST", "/v1/get", `{"domain":"shop","descriptors":[{"entries":[{"key":"ip","value":"10.9.9.9"}]}]}`, bearer(readToken))
	if remaining := got.json["descriptors"].([]any)[0].(map[string]any)["limits"].([]any)[0].(map[string]any)["remaining"]; remaining != 10.0 {
		t.Errorf("%v remain: %s", remaining, got.text)
	}
}
