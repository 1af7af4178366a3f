package page_test

import (
	"os"
	"path/filepath"
	"testing"
)

// Why finds a counter that values share by the text of its row in Top, also as rls top writes it.
// Rules and Why tell which fields overlays have set.
func TestSharedCountersAndOverlays(t *testing.T) {
	overlay := filepath.Join(t.TempDir(), "overlay.yaml")
	if err := os.WriteFile(overlay, []byte("overlays: [{path: [{key: ip}], set: {strategy: gcra, burst: 9}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "OVERLAY_FILE="+overlay)
	s.write(rules + "  - {key: ip, match: {cidr: [10.0.0.0/8]}, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 20}}\n")
	p := s.signedIn("#rules")
	p.sees("ip~cidr:10.0.0.0/8", "20 per day, gcra, burst 9", "overlay: burst, strategy")
	s.hit(11, []entry{{"ip", "10.1.2.3"}})
	p.view("Top")
	row := `document.querySelector("[data-testid=top-row] a")`
	p.waits(row + `?.innerText === "ip=~cidr:10.0.0.0/8"`)
	p.click(row)
	limit := `document.querySelector("[data-testid=limit]")?.innerText`
	p.waits(limit + `?.includes("count 9")`)
	if title := js[string](p, `document.querySelector("[data-testid=limit] [data-testid=overlay]").title`); title != "burst from "+overlay+":1; strategy from "+overlay+":1" {
		t.Errorf("title %s", title)
	}
	p.fill("Descriptor", "ip~cidr:10.0.0.0/8")
	p.press("\r")
	p.waits(`location.hash.endsWith("descriptor=ip%3D%7Ecidr%3A10.0.0.0%2F8")`)
	p.waits(limit + `?.includes("count 9")`)
}
