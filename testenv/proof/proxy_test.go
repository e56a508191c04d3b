package proof_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy relays the bytes of connections to a NATS server, and breaks the connections.
type proxy struct {
	listener net.Listener
	target   string
	all      sync.WaitGroup
	// dialer tells who opens a connection, by its first bytes. nil tells nobody.
	dialer func(first []byte) string
	// still holds up what clients say, or what the server says, while it is locked.
	still [2]sync.RWMutex

	mu struct {
		sync.Mutex
		links    map[*link]struct{}
		closed   bool
		refusing bool   // new connections are closed
		shunned  string // whose connections are closed, by dialer; "" for nobody
		// filter says how many of n bytes are relayed, and whether that is all before a cut.
		filter func(n int, fromServer bool) (relayed int, last bool)
	}
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	dialer         string // "" until it is known
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// newProxy makes a proxy in front of the server at a NATS URL.
func newProxy(t *testing.T, target string) *proxy {
	u, err := url.Parse(target)
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	p := &proxy{listener: listener, target: u.Host}
	p.mu.links = map[*link]struct{}{}
	p.all.Go(p.accept)

	t.Cleanup(func() {
		p.mu.Lock()
		p.mu.closed = true
		p.mu.Unlock()
		_ = listener.Close()
		p.cut()
		p.all.Wait()
	})

	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}

		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}

		l := &link{client: client, server: server}
		if !p.add(l) {
			l.close()
			continue
		}

		p.all.Go(func() { p.copy(l, l.server, l.client, false) })
		p.all.Go(func() { p.copy(l, l.client, l.server, true) })
	}
}

func (p *proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.mu.closed || p.mu.refusing {
		return false
	}

	p.mu.links[l] = struct{}{}
	return true
}

// copy relays bytes until either side is closed.
func (p *proxy) copy(l *link, to io.Writer, from io.Reader, fromServer bool) {
	defer func() {
		l.close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.mu.links, l)
	}()

	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}

		if !fromServer && p.isShunned(l, buffer[:n]) {
			return
		}

		n, last := p.take(n, fromServer)
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}

		if last {
			p.cut()
			return
		}
	}
}

func (p *proxy) take(n int, fromServer bool) (relayed int, last bool) {
	still := &p.still[0]
	if fromServer {
		still = &p.still[1]
	}
	still.RLock()
	defer still.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.mu.filter == nil {
		return n, false
	}

	return p.mu.filter(n, fromServer)
}

// cutAfter cuts all connections after that many bytes, of both directions together. The channel is
// closed then.
func (p *proxy) cutAfter(left int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut := make(chan struct{})

	p.mu.filter = func(n int, _ bool) (relayed int, last bool) {
		relayed = min(n, left)
		if left -= relayed; left > 0 {
			return relayed, false
		}

		close(cut)
		p.mu.filter = nil
		return relayed, true
	}

	return cut
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

func (p *proxy) cutLocked() {
	for l := range p.mu.links {
		l.close()
	}
}

// refuse cuts all connections and accepts no new ones, or accepts them again. nil has none.
func (p *proxy) refuse(on bool) {
	if p == nil {
		return
	}

	p.mu.Lock()
	p.mu.refusing = on
	p.mu.Unlock()

	if on {
		p.cut()
	}
}

// isShunned reports whether a connection, which may have begun with these bytes, is to be closed.
func (p *proxy) isShunned(l *link, first []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dialer != nil && l.dialer == "" {
		l.dialer = p.dialer(first)
	}
	return l.dialer != "" && l.dialer == p.mu.shunned
}

// deafen starts to drop what the server says to the clients, or the other way round. The channel is
// closed once something was dropped.
func (p *proxy) deafen(server bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	swallowed := make(chan struct{})
	once := sync.OnceFunc(func() { close(swallowed) })

	p.mu.filter = func(n int, fromServer bool) (int, bool) {
		if fromServer != server {
			return n, false
		}

		once()
		return 0, false
	}

	return swallowed
}

// hear ends deafen by cutting the connections, since nobody can know any more which bytes got
// through. Nothing of a new connection is dropped: who waits for the first word of a server waits
// as long as its timeout.
func (p *proxy) hear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
	p.mu.filter = nil
}
