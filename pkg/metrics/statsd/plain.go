package statsd

import (
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"time"
)

const (
	dialWithin  = time.Second
	writeWithin = time.Second
	// maxDatagram and maxPiece bound the bytes of one write: a datagram has to fit
	// a frame of Ethernet.
	maxDatagram = 1432
	maxPiece    = 64 << 10
)

// plain sends statsd's lines, path:value|kind, over UDP or TCP.
type plain struct {
	network, addr string
	tags          string // appended to each path: .__key=value
	log           *slog.Logger

	conn   net.Conn // nil while not connected
	buf    []byte
	max    int  // bytes in one write
	silent bool // the failure was logged already
}

// NewSink returns a sink that sends to addr over network, tcp or udp, with the tags in
// each path. It connects again after a failure. Only the first failure is logged.
func NewSink(network, addr string, tags map[string]string, log *slog.Logger) Sink {
	p := &plain{network: network, addr: addr, log: log, max: maxPiece}
	if network == "udp" {
		p.max = maxDatagram
	}
	sortedTags(tags, func(key, value string) { p.tags += ".__" + without(inLines, key) + "=" + without(inLines, value) })
	return p
}

// Send sends one line for all calls, with the sampling rate 1/calls, from which
// the server computes their number again. The rate is rounded down, so that the
// server's 1/rate is not less than calls.
func (p *plain) Send(of Kind, path string, value, calls uint64) bool {
	if p.conn == nil {
		var err error
		if p.conn, err = net.DialTimeout(p.network, p.addr, dialWithin); err != nil {
			p.failed(err)
			return false
		}
	}
	rate := ""
	if calls > 1 {
		rate = "|@" + strconv.FormatFloat(math.Nextafter(1/float64(calls), 0), 'f', -1, 64)
	}
	line := fmt.Sprintf("%s%s:%d|%s%s\n", path, p.tags, value, of, rate)
	if len(p.buf)+len(line) > p.max {
		if p.Flush(); p.conn == nil {
			return false
		}
	}
	p.buf = append(p.buf, line...)
	return true
}

func (p *plain) Flush() {
	buf := p.buf
	p.buf = p.buf[:0]
	if p.conn == nil || len(buf) == 0 {
		return
	}
	err := p.conn.SetWriteDeadline(time.Now().Add(writeWithin))
	if err == nil {
		_, err = p.conn.Write(buf)
	}
	if err != nil {
		p.failed(err)
		return
	}
	p.silent = p.silent && p.network == "udp" // over UDP a write succeeds without a server
}

func (p *plain) failed(err error) {
	if !p.silent {
		p.log.Warn("statsd cannot be reached; it is tried again, and further failures are not logged (USE_STATSD=false switches it off)", "error", err.Error())
	}
	p.silent = true
	p.Close()
	p.conn = nil
}

func (p *plain) Close() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
}
