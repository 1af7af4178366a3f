package lane

import (
	"strings"
	"testing"

	"example.org/rls/pkg/backends/remote"
)

// TestAnswersInParts: answers of RESP2 and RESP3 pass, and wrong ones do not, in whatever parts
// they come.
func TestAnswersInParts(t *testing.T) {
	check := func(text string, size int) (bound remote.Bound, err error) {
		bound = remote.Bound{Header: header, MaxBytes: 1 << 20}
		bound.Begin()
		for rest := []byte(text); len(rest) > 0 && err == nil; {
			n := min(size, len(rest))
			err = bound.Check(rest[:n])
			rest = rest[n:]
		}
		return bound, err
	}
	for _, text := range []string{
		"+OK\r\n:1\r\n-ERR no\r\n", "$-1\r\n*-1\r\n_\r\n", "$0\r\n\r\n$12\r\n*9\r\n$9\r\n\r\n:1\r\n:1\r\n", "*0\r\n*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n#t\r\n,1.5\r\n", "|1\r\n+ttl\r\n:1\r\n*1\r\n|1\r\n+a\r\n+b\r\n(1\r\n", ">3\r\n+a\r\n+b\r\n~1\r\n=5\r\ntxt:a\r\n!3\r\nERR\r\n",
	} {
		for size := 1; size <= len(text); size++ {
			if bound, err := check(text, size); err != nil || !bound.Complete() {
				t.Errorf("%q in parts of %d: %v, complete %v", text, size, err, bound.Complete())
			}
			if bound, _ := check(text[:len(text)-1], size); bound.Complete() {
				t.Errorf("%q without its end in parts of %d is complete", text, size)
			}
		}
	}
	for _, text := range []string{
		"*30000\r\n", "*2\r\n*20000\r\n*20000\r\n", "$1048577\r\n", "$99999999999999999999\r\n", "*-2\r\n", "$x\r\n", "$\r\n", "\r\n", "x\r\n", "%2147483648\r\n",
		strings.Repeat("*1\r\n", 17), "+" + strings.Repeat("a", 1<<20), "-" + strings.Repeat("a", 4000), strings.Repeat(":1\r\n", 1<<18+1), strings.Repeat("$1000\r\n"+strings.Repeat("a", 1000)+"\r\n", 1100),
	} {
		for _, size := range []int{7, 4096, len(text)} {
			if _, err := check(text, size); err == nil {
				t.Errorf("%.40q in parts of %d passes", text, size)
			}
		}
	}
}
