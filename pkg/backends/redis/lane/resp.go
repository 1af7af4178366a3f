package lane

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"example.org/rls/pkg/backends/remote"
)

// maxAnswers bounds the answers to one exchange. The largest are the slots of a cluster of which
// each is a range of its own, about 16 MB, and those to 256 scripts for many limits each.
const maxAnswers = 32 << 20

// header reads a line of RESP2 or RESP3, as the Header of an remote.Bound.
func header(line []byte) (body, elements int, err error) {
	kind := line[0]
	if strings.IndexByte("+-:_,#(", kind) >= 0 {
		return 0, 0, nil
	}
	n, err := strconv.ParseInt(string(bytes.TrimSuffix(line[1:], []byte("\r\n"))), 10, 32)
	switch {
	case err != nil || n < -1 || strings.IndexByte("$=!*~>%|", kind) < 0:
		return 0, 0, remote.Wrong("%.40q", line)
	case n == -1: // nil
	case kind == '%':
		elements = 2 * int(n)
	case kind == '|': // comes before the element that it describes
		elements = 2*int(n) + 1
	case strings.IndexByte("$=!", kind) >= 0:
		body = int(n) + len("\r\n")
	default:
		elements = int(n)
	}
	return body, elements, nil
}

// wholes are the commands whose answers are read to their end, and looked at, before go-redis
// gets them: it relies on what sentinels answer, and ends the process otherwise, and cannot
// read the slots of nodes whose host a cluster does not tell.
var wholes = map[string]*regexp.Regexp{
	"get-master-addr-by-name": regexp.MustCompile(`^(?:\*2\r\n\$\d+\r\n[^\r\n]+\r\n\$\d+\r\n\d+|[*$]-1|_|-[^\r\n]*)\r\n$`),
	"subscribe": regexp.MustCompile(`^(?:[*>](?:3\r\n(?:` +
		`\$9\r\nsubscribe\r\n\$\d+\r\n[^\r\n]+\r\n:\d+|` +
		`\$7\r\nmessage\r\n\$14\r\n\+switch-master\r\n\$\d+\r\n\S+ \S+ \S+ \S+ \S+|` +
		`\$7\r\nmessage\r\n\$20\r\n\+replica-reconf-done\r\n\$\d+\r\n[^\r\n]*` +
		`)|2\r\n\$4\r\npong\r\n\$\d+\r\n[^\r\n]*)\r\n|[+-][^\r\n]*\r\n)+$`),
	"cluster": regexp.MustCompile(`(\*[2-4]\r\n)(?:\$-1|_|\$0\r\n|\$1\r\n\?)(\r\n:)`), // nodes without a host
}

// command is the name of the first command in b, as go-redis and the store write it; "" if
// b begins with a command that needs no care.
func command(b []byte) string {
	const before = len("*3\r\n$8\r\n") // these commands have few and short arguments
	if len(b) < before {
		return ""
	}
	name := b[before : before+max(0, bytes.IndexByte(b[before:], '\r'))]
	for _, known := range [...]string{"hello", "time", "setrange", "subscribe", "cluster"} {
		if string(name) == known {
			return known
		}
	}
	if string(name) == "sentinel" && bytes.Contains(b, []byte("get-master-addr-by-name")) {
		return "get-master-addr-by-name"
	}
	return ""
}
