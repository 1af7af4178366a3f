package page_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
)

// tops is an answer of /v1/top with these users.
func tops(users ...string) *[]byte {
	type row struct {
		Domain  string  `json:"domain"`
		Rule    string  `json:"rule"`
		Entries []entry `json:"entries"`
		Hits    int     `json:"hits"`
		Denied  int     `json:"denied"`
		Cost    int     `json:"cost"`
		Rate    float64 `json:"rate"`
	}
	var rows []row
	for i, name := range users {
		rows = append(rows, row{"shop", "shop.plan_free.user", user(name), 4000 / (i + 1), 1000 / (i + 1), 4000, 66.7})
	}
	text, err := json.Marshal(map[string]any{"by": "denied", "window": "60s", "error": 12, "rows": rows, "total": map[string]int{"hits": 12345, "denied": 3456, "cost": 12345}})
	if err != nil {
		panic(err)
	}
	return &text
}

func TestTop(t *testing.T) {
	s := serve(t)
	s.hit(1, user("ann"))
	s.fakes.Store("/v1/top", tops("hottest", "ann"))
	p := s.signedIn("#top")
	p.waits(`document.querySelectorAll("[data-testid=top-row]").length === 2`)
	p.sees("user=hottest", "12,345 hits, 3,456 denied", "at most 12 too high", "66.7/s", "25 %")
	p.shot("rows")
	// The order changes below the pointer, and the focus stays.
	js[bool](p, `document.querySelector("[data-testid=top-row]:nth-child(2) a").focus() || true`)
	s.fakes.Store("/v1/top", tops("ann", "hottest"))
	p.waits(`document.querySelector("[data-testid=top-row]").innerText.includes("user=ann")`)
	p.waits(`document.activeElement.innerText.includes("user=ann")`)
	p.press("\r")
	p.waits(labelled("Domain") + `?.value === "shop"`)
	p.waits(labelled("Descriptor") + `.value === "plan=free,user=ann"`)
	p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("count 1")`)
}

// The rows show the traffic, and the view Rules leads to the rows of a rule.
func TestTopOfTraffic(t *testing.T) {
	s := serve(t)
	s.hit(30, user("hottest"))
	s.hit(11, user("ann"))
	s.hit(3, []entry{{"banner", "<i>x"}})
	p := s.signedIn("#top")
	row := `[...document.querySelectorAll("[data-testid=top-row]")].map(r => r.innerText.replaceAll(/\s+/g, " "))`
	p.waits(row + `[0]?.startsWith("plan=free,user=hottest shop.plan_free.user ")`)
	p.waits(row + `[1].includes("user=ann")`)
	p.view("Rules")
	p.click(`document.querySelector("[aria-label='Top keys of shop.plan_free.user']")`)
	p.waits(row + `.length === 2`)
	p.waits(labelled("Rule") + `.value === "shop.plan_free.user"`)
	js[string](p, `location.hash = "#top?rule=shop.banner"`)
	p.sees("Nobody was denied.") // the rule is in shadow mode
	js[bool](p, `(document.getElementById("by").value = "cost", document.getElementById("by").dispatchEvent(new Event("change")), true)`)
	p.fill("Rule", "")
	p.press("\r")
	p.waits(row + `.length === 3 && location.hash === "#top?by=cost"`)
	p.shot("cost")
}

// Top and Why show the buckets of Envoys that enforce a limit, and their shares.
func TestQuotas(t *testing.T) {
	s := serve(t)
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, allowed := range []uint64{3, 1} { // two Envoys
		stream, err := quota.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
		if err == nil {
			err = stream.Send(&quota.RateLimitQuotaUsageReports{Domain: "shop", BucketQuotaUsages: []*quota.RateLimitQuotaUsageReports_BucketQuotaUsage{{
				BucketId:           &quota.BucketId{Bucket: map[string]string{"plan": "free", "user": "ann"}},
				NumRequestsAllowed: allowed, TimeElapsed: durationpb.New(0),
			}}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p := s.signedIn("#top?by=cost")
	p.waits(`document.querySelector("[data-testid=top-row]")?.innerText.includes("2 buckets of Envoys, assigned 1.6/s")`) // 7 hits, and 1 of those that remain
	p.sees("plan=free,user=ann")
	p.shot("buckets")
	p.click(`document.querySelector("[data-testid=top-row] a")`)
	p.sees("2 buckets of Envoys that enforce this themselves, assigned 1.6/s")
	p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("count 4")`)
	p.shot("buckets-why")
}

// Top has only the beginning of a long value, and Why says so.
func TestTopOfLongValues(t *testing.T) {
	s := serve(t)
	s.hit(11, user(strings.Repeat("x", 8<<10)))
	p := s.signedIn("#top")
	p.click(`document.querySelector("[data-testid=top-row] a")`)
	p.sees("Top shows only the beginning of long keys and values")
}

// Texts of callers are only ever text.
func TestHostileTexts(t *testing.T) {
	s := serve(t)
	script := `<script>document.title = "owned"</script><img src=x onerror='document.title="owned"'>`
	control := "\x00\x1b[31m\x07\r\n\u202egnp,=[{"
	long := strings.Repeat("<b>long", 8<<10/7)
	s.fakes.Store("/v1/top", tops(script, control, long, "nice"))
	for _, text := range []string{script, control, long} {
		s.hit(1, user(text))
	}
	p := s.signedIn("#top")
	p.waits(`document.querySelectorAll("[data-testid=top-row]").length === 4`)
	p.shot("top")
	harmless := func() {
		t.Helper()
		if js[bool](p, `document.title.includes("owned") || document.querySelector("main script, main b b, main img") !== null`) {
			t.Fatal("a text became HTML")
		}
		if wide := js[int](p, "document.documentElement.scrollWidth"); wide > 1280 {
			t.Errorf("the page is %d wide", wide)
		}
	}
	harmless()
	p.sees(script, `\u0000\u001b[31m\u0007\u000d\u000a\u202egnp,=[{`, "user=nice")
	for i, text := range []string{script, control, long} {
		p.view("Top")
		p.click(fmt.Sprintf(`document.querySelectorAll("[data-testid=top-row] a")[%d]`, i))
		p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("count 1")`)
		if got := js[string](p, labelled("Descriptor")+".value"); !strings.Contains(got, "plan") || len(got) < len(text) {
			t.Errorf("the field has %.100q", got)
		}
		harmless()
		p.fill("Reason", script)
		p.click(named("button", "Reset"))
		p.click(named("[role=dialog] button", "Confirm"))
		p.sees("counters changed")
		harmless()
	}
	p.shot("why")
	p.view("Audit")
	p.waits(`document.querySelectorAll("[data-testid=audit-row]").length === 6`)
	p.sees(script)
	harmless()
	p.shot("audit")
	p.size(400, 800)
	if wide := js[int](p, "document.documentElement.scrollWidth"); wide > 400 {
		t.Errorf("the page is %d wide", wide)
	}
}

// The link of a key that is not UTF-8 leads to its own counter, and a grant is to that one.
func TestTopOfAnyText(t *testing.T) {
	s := serve(t)
	shown := strings.Replace(string(*tops(`ann\xff`)), `"value":"ann\\xff"`, `"value":"ann\\xff","raw":"YW5u/w=="`, 1)
	s.fakes.Store("/v1/top", new([]byte(shown)))
	p := s.signedIn("#top")
	p.sees(`user=ann\xff`)
	p.click(`document.querySelector("[data-testid=top-row] a")`)
	p.waits(labelled("Descriptor") + `?.value.includes('{"key":"user","value":"ann\\\\xff","raw":"YW5u/w=="}')`)
	p.waits(`document.querySelector("[data-testid=limit]")?.innerText.includes("user=ann%FF")`)
	p.fill("Hits", "5")
	p.click(named("button", "Grant"))
	p.click(named("[role=dialog] button", "Confirm"))
	p.sees("Granted: 2 counters changed.")
	p.view("Audit")
	p.waits(`document.querySelector("[data-testid=audit-row]")?.innerText.includes("YW5u/w==")`)
}
