package docs_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"example.org/rls/internal/testenv"
)

const burstPicture = root + "/docs/pictures/strategies.svg"

// panels are the limits of 30 a minute of the picture, each with what its name says. A request
// that takes seconds gives its slot back after them.
var panels = []struct {
	fields, name string
	takes        int64 // s
}{
	{"fixed_window", "fixed_window", 0},
	{"sliding_window", "sliding_window", 0},
	{"sliding_window, precision: 6", "sliding_window, precision: 6", 0},
	{"sliding_log", "sliding_log", 0},
	{"token_bucket", "token_bucket", 0},
	{"gcra", "gcra", 0},
	{"leaky_bucket, max_delay: 30s", "leaky_bucket, max_delay: 30s", 0},
	{"concurrency", "concurrency, each request takes 20 s", 20},
}

// drawBurst draws when the hits of one burst, and those after it, pass each of the limits.
func drawBurst(t *testing.T) string {
	const (
		second         = minute / 60
		from           = 42    // s, where the axis begins
		bin, bins      = 3, 57 // s
		width, height  = 430, 170
		left, base     = 16, 120
		burst, seconds = 60, 12 // hits, and the time in which they come
	)
	var come []int64
	for i := range int64(burst) { // from 54 s on, so that half of them come before the minute ends
		come = append(come, 54*second+i*seconds*second/burst)
	}
	for s := int64(66); s < 180; s++ {
		come = append(come, s*second)
	}
	area := func(times []int64) string {
		var counts [bins]int
		for _, at := range times {
			counts[(at/second-from)/bin]++
		}
		path := fmt.Sprintf("M%d %d", left, base)
		for i, n := range counts {
			path += fmt.Sprintf("V%dH%d", base-6*n, left+7*(i+1))
		}
		return path + fmt.Sprintf("V%dZ", base)
	}
	var drawn, words strings.Builder
	for i, p := range panels {
		passed := passes(t, 30, p.fields, come, p.takes*second)
		ofBurst := len(passes(t, 30, p.fields, come[:burst], p.takes*second))
		caption := fmt.Sprintf("%d of the 60 pass, then %d of 114; at most %d in any minute", ofBurst, len(passed)-ofBurst, most(passed))
		fmt.Fprintf(&words, " %s: %s.", p.name, caption)
		fmt.Fprintf(&drawn, "<g transform=\"translate(%d %d)\">\n<text class=\"name\" x=\"%d\" y=\"18\">%s</text>\n",
			i%2*width, 50+i/2*height, left, p.name)
		for m := 1; m <= 3; m++ {
			x := left + (m*60-from)*7/bin
			fmt.Fprintf(&drawn, "<path class=\"grid\" d=\"M%d 26V%d\"/><text class=\"small\" x=\"%d\" y=\"%d\">%d:00</text>\n",
				x, base+4, x-3, base+17, m)
		}
		fmt.Fprintf(&drawn, "<path class=\"demand\" d=\"%s\"/>\n<path class=\"passed\" d=\"%s\"/>\n", area(come), area(passed))
		fmt.Fprintf(&drawn, "<text class=\"small\" x=\"%d\" y=\"%d\">%s</text>\n</g>\n", left, base+34, caption)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">
<title id="title">What each strategy lets through of the same burst</title>
<desc id="desc">Each limit is 30 a minute. 60 hits come within 12 seconds, half of them before a minute ends; then one a second.%s</desc>
<!-- Written by make pictures: change test/docs/burst_test.go instead. -->
<style>
:root { --ink: #1f2328; --soft: #59636e; --paper: #fff; --blue: #0969da; --line: #d1d9e0 }
@media (prefers-color-scheme: dark) { :root { --ink: #f0f6fc; --soft: #9198a1; --paper: #0d1117; --blue: #4493f8; --line: #3d444d } }
text { font: 14px system-ui, sans-serif; fill: var(--ink) } .name { font-weight: 600 } .small { font-size: 11.5px; fill: var(--soft) }
.grid { stroke: var(--line) } .demand { fill: var(--line) } .passed { fill: var(--blue) }
</style>
<rect width="100%%" height="100%%" rx="8" style="fill:var(--paper)"/>
<rect class="demand" x="16" y="16" width="12" height="12"/><text class="small" x="33" y="26">hits that come</text>
<rect class="passed" x="126" y="16" width="12" height="12"/><text class="small" x="143" y="26">hits that pass, when they do; per 3 s, over minutes</text>
<text class="small" x="16" y="46">Each limit is 30 a minute. 60 hits come within 12 seconds, half of them before a minute ends; then one a second.</text>
%s</svg>
`, 2*width, 60+(len(panels)+1)/2*height, words.String(), drawn.String())
}

// TestTheBurstIsTrue: docs/pictures/strategies.svg is what the strategies let through, and the
// document shows it.
func TestTheBurstIsTrue(t *testing.T) {
	testenv.Golden(t, burstPicture, drawBurst(t), "test/docs")
	if !strings.Contains(readDoc(t, strategiesDoc), "](pictures/"+filepath.Base(burstPicture)+")") {
		t.Errorf("%s does not show the picture", strategiesDoc)
	}
}
