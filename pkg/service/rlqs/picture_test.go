package rlqs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/internal/testenv"
)

const pictureFile = "../../../docs/pictures/quotas.svg"

// scenes are what the picture shows: two Envoys, one on each of two replicas.
var scenes = []struct {
	name    string
	key     string
	limit   int // hits in a window
	window  int // s
	seconds int
	dies    int // the second in which the second Envoy dies; 0 is never
	demand  func(second int) sizes
}{
	{"demand jumps, 100 a second", "second", 100, 1, 110, 0, func(s int) sizes {
		if s >= 30 && s < 70 {
			return sizes{60, 240}
		}
		return sizes{60, 20}
	}},
	{"an Envoy dies, 100 a second", "second", 100, 1, 110, 40, func(s int) sizes { return sizes{120, 120} }},
	{"3,000 a minute", "wide", 3000, 60, 110, 0, func(s int) sizes {
		if s >= 30 {
			return sizes{30, 120}
		}
		return sizes{30, 30}
	}},
}

const wide = rules + "  - {key: wide, rate_limit: {unit: minute, requests_per_unit: 3000}}\n"

// asked has the same requests ask ShouldRateLimit.
func (w *world) asked(seconds, dies int, key string, demand func(int) sizes) (passed [][]int) {
	const steps = 10
	m := &rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "v"}}},
	}}
	for second := range seconds {
		one := make([]int, 2)
		for step := range steps {
			for i, n := range demand(second) {
				if i == 1 && dies > 0 && second >= dies {
					continue
				}
				for range n*(step+1)/steps - n*step/steps {
					reply, err := w.replicas[i].envoy.ShouldRateLimit(w.t.Context(), m)
					if err != nil {
						w.t.Fatal(err)
					}
					if reply.OverallCode == rls.RateLimitResponse_OK {
						one[i]++
					}
				}
			}
			pass(time.Second / steps)
		}
		passed = append(passed, one)
	}
	return passed
}

// enforced has two Envoys enforce the limit.
func (w *world) enforced(seconds, dies int, key string, demand func(int) sizes) [][]int {
	all := []*proxy{w.proxy(0), w.proxy(1)}
	all[1].ticked = all[1].ticked.Add(-2 * time.Second) // they report in turns
	return w.run(all, time.Duration(seconds)*time.Second, key, func(second int) sizes {
		if dies > 0 && second == dies {
			all[1].lose()
			all[1] = nil
		}
		return demand(second)
	})
}

// most is the highest number of hits in 30 s, or in a window, as a part of what the limit allows.
func most(passed [][]int, limit, window int) (part float64) {
	span, step := 30, 1
	if window > span {
		span, step = window, window
	}
	for from := 0; from+span <= len(passed); from += step {
		part = max(part, float64(sum(passed[from:from+span], -1))/(float64(limit)*float64(span)/float64(window)))
	}
	return part
}

// curve is the path of an area between two numbers of hits in each second.
func curve(lower, upper []int, x, y func(int) float64) string {
	path := fmt.Sprintf("M%.1f %.1f", x(0), y(lower[0]))
	for i, n := range upper {
		if i == 0 || n != upper[i-1] {
			path += fmt.Sprintf("H%.1fV%.1f", x(i), y(n))
		}
	}
	path += fmt.Sprintf("H%.1f", x(len(upper)))
	for i := len(lower) - 1; i >= 0; i-- {
		if i == len(lower)-1 || lower[i] != lower[i+1] {
			path += fmt.Sprintf("H%.1fV%.1f", x(i+1), y(lower[i]))
		}
	}
	return path + "Z"
}

// picture draws the scenes.
func picture(t *testing.T) string {
	const width, height, left, base = 430, 190, 16, 140
	x := func(second int) float64 { return left + float64(second)*3.6 }
	y := func(hits int) float64 { return base - float64(hits)*0.34 }
	var curves, words strings.Builder
	for row, s := range scenes {
		for column, way := range []func(*world, int, int, string, func(int) sizes) [][]int{(*world).enforced, (*world).asked} {
			var passed [][]int
			in(t, func(t *testing.T) {
				pass(39900 * time.Millisecond)
				passed = way(start(t, 2, wide), s.seconds, s.dies, s.key, s.demand)
			})
			none, first, both, wanted := make([]int, s.seconds), make([]int, s.seconds), make([]int, s.seconds), make([]int, s.seconds)
			all := 0
			for i, one := range passed {
				first[i], both[i], wanted[i] = one[0], one[0]+one[1], s.demand(i)[0]+s.demand(i)[1]
				if s.dies > 0 && i >= s.dies {
					wanted[i] = s.demand(i)[0]
				}
				all += wanted[i]
			}
			name := []string{"RLQS", "ShouldRateLimit"}[column] + ": " + s.name
			caption := fmt.Sprintf("%d of %d pass; at most %.0f %% of the limit in any 30 s", sum(passed, -1), all, 100*most(passed, s.limit, s.window))
			if s.window > 30 {
				caption = strings.Replace(caption, "any 30 s", "a window", 1)
			}
			fmt.Fprintf(&words, " %s: %s.", name, caption)
			fmt.Fprintf(&curves, "<g transform=\"translate(%d %d)\">\n<text class=\"name\" x=\"%d\" y=\"24\">%s</text>\n", column*width, 50+row*height, left, name)
			fmt.Fprintf(&curves, "<path class=\"demand\" d=\"%s\"/>\n<path class=\"first\" d=\"%s\"/>\n<path class=\"second\" d=\"%s\"/>\n",
				curve(none, wanted, x, y), curve(none, first, x, y), curve(first, both, x, y))
			for second := 0; second <= s.seconds; second += 10 {
				fmt.Fprintf(&curves, "<path class=\"grid\" d=\"M%.1f %dv4\"/>", x(second), base)
				if second%30 == 0 {
					fmt.Fprintf(&curves, "<text class=\"small\" x=\"%.1f\" y=\"%d\">%d</text>\n", x(second)-6, base+17, second)
				}
			}
			fmt.Fprintf(&curves, "<path class=\"limit\" d=\"M%.1f %.1fH%.1f\"/>\n<text class=\"small\" x=\"%d\" y=\"%d\">%s</text>\n</g>\n",
				x(0), y(s.limit/s.window), x(s.seconds), left, base+34, caption)
		}
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">
<title id="title">What two Envoys let through, with RLQS and with ShouldRateLimit</title>
<desc id="desc">The simulation of pkg/service/rlqs.%s</desc>
<!-- Written by make pictures: change pkg/service/rlqs/picture_test.go instead. -->
<style>
:root { --ink: #1f2328; --soft: #59636e; --paper: #fff; --blue: #0969da; --blue-2: #54aeff; --line: #d1d9e0; --red: #cf222e }
@media (prefers-color-scheme: dark) { :root { --ink: #f0f6fc; --soft: #9198a1; --paper: #0d1117; --blue: #4493f8; --blue-2: #1f6feb; --line: #3d444d; --red: #f85149 } }
text { font: 14px system-ui, sans-serif; fill: var(--ink) } .name { font-weight: 600 } .small { font-size: 11.5px; fill: var(--soft) }
.grid { stroke: var(--line) } .demand { fill: var(--line) } .first { fill: var(--blue) } .second { fill: var(--blue-2) } .limit { stroke: var(--red); stroke-dasharray: 4 3 }
</style>
<rect width="100%%" height="100%%" rx="8" style="fill:var(--paper)"/>
<rect class="demand" x="16" y="16" width="12" height="12"/><text class="small" x="33" y="26">requests that come</text>
<rect class="first" x="150" y="16" width="12" height="12"/><rect class="second" x="166" y="16" width="12" height="12"/><text class="small" x="183" y="26">requests that the first and the second Envoy let pass, in each second</text>
<path class="limit" d="M622 22h20"/><text class="small" x="647" y="26">the limit, spread over its window</text>
<text class="small" x="16" y="46">Two Envoys ask two replicas that count in one store. The second one asks more from 30 s on (in the first row: until 70 s), or dies at 40 s.</text>
%s</svg>
`, 2*width, 60+len(scenes)*height, words.String(), curves.String())
}

// TestThePictureIsTrue: docs/pictures/quotas.svg is what the simulation draws.
func TestThePictureIsTrue(t *testing.T) {
	testenv.Golden(t, pictureFile, picture(t), "pkg/service/rlqs")
}
