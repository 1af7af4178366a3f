package match

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// ending is a context that ends when it is asked again after so many times.
type ending struct {
	context.Context
	asked, most int
}

func (e *ending) Err() error {
	if e.asked++; e.asked > e.most {
		return context.DeadlineExceeded
	}
	return nil
}

func expressionOf(t *testing.T, text string, ignoreCase bool) *Match {
	t.Helper()
	m, wrong := New(&Kinds[4], []string{text}, false, ignoreCase)
	if wrong != nil {
		t.Fatal(wrong)
	}
	return m
}

// A costly expression ends with the context within a long value, and so do many cheap ones together;
// the context is asked once in many steps.
func TestWorkEndsWithItsContext(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var one, many, beside Index
	one.Add(expressionOf(t, "(.*x{1,30}){1,30}", false), 1)
	beside.Add(expressionOf(t, ".*[a-z]", true), 1)
	for i := range 2000 {
		many.Add(expressionOf(t, fmt.Sprintf("[a-z]*[0-9]{1,%d}", 1+i%90), false), i+1)
	}
	for name, c := range map[string]struct {
		index *Index
		value string
	}{"one": {&one, long + "!"}, "many": {&many, long[:100]}} {
		for most := range 3 {
			ctx := &ending{most: most}
			w := &Work{Ctx: ctx}
			c.index.Find(w, c.value)
			if !w.Ended() || ctx.asked != most+1 {
				t.Errorf("%s: the context is asked %d times, want %d", name, ctx.asked, most+1)
			}
		}
	}
	ctx := &ending{most: 1 << 30}
	w := &Work{Ctx: ctx}
	if order, _ := beside.Find(w, long); order != 1 || w.Ended() || ctx.asked == 0 || ctx.asked > 100 {
		t.Errorf("a long value: order %d, the context is asked %d times", order, ctx.asked)
	}
}

// An expression whose literal stands in a value again and again is asked about the value once, also
// among many expressions.
func TestAnExpressionIsAskedOnce(t *testing.T) {
	for _, fold := range []bool{false, true} {
		var x Index
		asked := make([]int, 1000)
		for i := range asked {
			m := expressionOf(t, fmt.Sprintf(".*xyz.*[0-9]{%d}", 1+i), fold)
			m.verify = func(string, *Work) bool { asked[i]++; return false }
			x.Add(m, i+1)
		}
		x.Find(nil, strings.Repeat("xyz", 100))
		for i, n := range asked {
			if n != 1 {
				t.Fatalf("expression %d is asked %d times", i, n)
			}
		}
	}
}

// Ways that can be interrupted find the same as those that cannot.
func TestLongValuesMatchAlike(t *testing.T) {
	for _, text := range []string{"[a-zß]*é", "(a|b)*.{3}", `(?s).*\bb`, "(?s).*", "[^@]{1,64}@[^@]{1,255}"} {
		m := expressionOf(t, text, false)
		for _, end := range []string{"é", "b", "\xff", "\uFFFD", " b", "@b", "\n", ""} {
			for _, body := range []string{strings.Repeat("ab", 1<<17), strings.Repeat("é", 1<<17), "a"} {
				w := &Work{Ctx: context.Background()}
				if got, want := m.TakesWithin(w, body+end), m.Takes(body+end); got != want {
					t.Errorf("%s takes …%q: %t, without interruption %t", text, end, got, want)
				}
			}
		}
	}
}
