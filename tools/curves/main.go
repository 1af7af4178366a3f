// Command curves draws what each strategy lets through of the same demand. The hits are decided
// by the service's own code, so the picture shows what it does.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/offline"
	"example.org/rls/pkg/service"
)

const (
	limit  = 30              // hits a minute
	step   = 6 * time.Second // of a curve
	end    = 5 * time.Minute // of the picture
	steady = 150             // hits, one a second
	burst  = 60              // hits within 12 s, before and after the end of the fourth minute

	width, height = 430, 190 // of one strategy, in pixels
	left, base    = 16, 140  // where its curve begins, and where it is 0
	perStep       = 7.8      // pixels
	perHit        = 3.3      // pixels
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: curves FILE.svg")
		os.Exit(2)
	}
	picture, err := draw()
	if err == nil {
		err = os.WriteFile(os.Args[1], []byte(picture), 0o644) //nolint:gosec // a document that everybody may read
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "curves:", err)
		os.Exit(1)
	}
}

// demand returns when hits come: steadily at twice the limit, not at all, and in a burst.
func demand() (at []time.Duration) {
	for i := range time.Duration(steady) {
		at = append(at, i*time.Second)
	}
	for i := range time.Duration(burst) {
		at = append(at, 234*time.Second+i*200*time.Millisecond)
	}
	return at
}

// play returns when the hits of the demand leave that a limit with these fields lets through,
// and how many of the steady ones and of the burst these are.
func play(fields string) (left []time.Duration, ofSteady, ofBurst int, err error) {
	text := fmt.Sprintf("domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: %d, strategy: %s}}]\n", limit, fields)
	tree, _, err := yaml.Load([]yaml.Text{{Name: "curves", Content: []byte(text)}}, rules.Options{})
	if err != nil {
		return nil, 0, 0, err
	}
	engine := offline.New(tree, 100)
	hit := &service.Request{Domain: "d", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "k", Value: "v"}}}}}
	for i, at := range demand() {
		engine.At(time.Unix(0, 0).Add(at))
		outcome, err := engine.Decide(hit)
		switch {
		case err != nil:
			return nil, 0, 0, err
		case outcome.Over:
			continue
		case i < steady:
			ofSteady++
		default:
			ofBurst++
		}
		left = append(left, at+outcome.Delay)
	}
	return left, ofSteady, ofBurst, nil
}

// most is the highest number of hits within a minute.
func most(at []time.Duration) (n int) {
	first := 0
	for i := range at {
		for at[first] <= at[i]-time.Minute {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// area is the path of an area that is as high as the number of hits in each step.
func area(at []time.Duration) string {
	counts := make([]int, end/step)
	for _, t := range at {
		counts[t/step]++
	}
	path := fmt.Sprintf("M%d %d", left, base)
	for i, n := range counts {
		path += fmt.Sprintf("V%.1fH%.1f", base-float64(n)*perHit, left+float64(i+1)*perStep)
	}
	return path + fmt.Sprintf("V%dZ", base)
}

// draw returns the picture: a curve for each strategy, in two columns. It has none for
// concurrency, which depends on when requests end.
func draw() (string, error) {
	var curves, words strings.Builder
	names := slices.DeleteFunc(algorithms.Names(), func(name string) bool { return name == algorithms.Concurrency.String() })
	for i, name := range names {
		fields := name
		if name == "leaky_bucket" {
			fields += ", max_delay: 30s" // else its curve is that of the token bucket
		}
		passed, ofSteady, ofBurst, err := play(fields)
		if err != nil {
			return "", err
		}
		caption := fmt.Sprintf("%d of %d pass, then %d of %d; at most %d in any minute",
			ofSteady, steady, ofBurst, burst, most(passed))
		fmt.Fprintf(&words, " %s: %s.", fields, caption)
		fmt.Fprintf(&curves, "<g transform=\"translate(%d %d)\">\n<text class=\"name\" x=\"%d\" y=\"24\">%s</text>\n",
			i%2*width, 50+i/2*height, left, fields)
		for minute := range int(end/time.Minute) + 1 {
			x := left + float64(minute)*perStep*float64(time.Minute/step)
			fmt.Fprintf(&curves, "<path class=\"grid\" d=\"M%.1f 36V%d\"/><text class=\"small\" x=\"%.1f\" y=\"%d\">%d</text>\n",
				x, base+4, x-3, base+17, minute)
		}
		fmt.Fprintf(&curves, "<path class=\"demand\" d=\"%s\"/>\n<path class=\"passed\" d=\"%s\"/>\n", area(demand()), area(passed))
		fmt.Fprintf(&curves, "<text class=\"small\" x=\"%d\" y=\"%d\">%s</text>\n</g>\n", left, base+34, caption)
	}
	about := fmt.Sprintf("Each limit is %d a minute. %d hits come, one a second; after a pause %d come within 12 seconds.",
		limit, steady, burst)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">
<title id="title">What each strategy lets through of the same demand</title>
<desc id="desc">%s%s</desc>
<!-- Written by make pictures: change tools/curves instead. -->
<style>
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .name { font-weight: 600 } .small { font-size: 11.5px; fill: #59636e }
.grid { stroke: #d1d9e0 } .demand { fill: #d1d9e0 } .passed { fill: #0969da }
</style>
<rect width="100%%" height="100%%" rx="8" fill="#fff"/>
<rect class="demand" x="16" y="16" width="12" height="12"/><text class="small" x="33" y="26">hits that come</text>
<rect class="passed" x="126" y="16" width="12" height="12"/><text class="small" x="143" y="26">hits that pass, when they do; per %d s, over minutes</text>
<text class="small" x="16" y="46">%s</text>
%s</svg>
`, 2*width, 60+3*height, about, words.String(), int(step.Seconds()), about, curves.String()), nil
}
