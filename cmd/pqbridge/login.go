package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

// How the names of the variables begin that say how to get into NATS.
const (
	natsPrefix = "PQ_NATS_"
	leafPrefix = "PQ_JETSTREAM_LEAF_"
)

// access is how to get into NATS, over one kind of connection.
type access struct {
	Creds        string `desc:"path of a NATS credentials file"`
	Nkey         string `desc:"path of a file with an nkey seed"`
	User         string `desc:"NATS user name"`
	Password     string `desc:"NATS password"`
	PasswordFile string `split_words:"true" desc:"path of a file with the NATS password, in place of the password itself"`
	Token        string `desc:"NATS token"`
	TokenFile    string `split_words:"true" desc:"path of a file with the NATS token, in place of the token itself"`
	TLS          struct {
		CA   string `desc:"path of the CA certificates to trust, PEM; if unset, the system's"`
		Cert string `desc:"path of the TLS client certificate, PEM"`
		Key  string `desc:"path of that certificate's private key, PEM"`
	}

	prefix string // of its variables
	url    string
}

// validate returns everything that is wrong with the values, joined.
func (a *access) validate() error {
	var problems []error
	check := func(ok bool, text string) {
		if !ok {
			problems = append(problems, errors.New(text))
		}
	}

	p := a.prefix
	check((a.TLS.Cert == "") == (a.TLS.Key == ""), fmt.Sprintf("%sTLS_CERT is %q and %sTLS_KEY %q: want both or none", p, a.TLS.Cert, p, a.TLS.Key))
	check(a.Password == "" || a.User != "", p+"PASSWORD is set and "+p+"USER is empty: want both or none")
	check(a.PasswordFile == "" || a.User != "", p+"PASSWORD_FILE is set and "+p+"USER is empty: want both or none")
	check(a.Password == "" || a.PasswordFile == "", p+"PASSWORD and "+p+"PASSWORD_FILE are both set: want one of them")
	check(a.Token == "" || a.TokenFile == "", p+"TOKEN and "+p+"TOKEN_FILE are both set: want one of them")
	check(a.PasswordFile+a.TokenFile == "" || !strings.Contains(a.url, "@"),
		p+"URL names a user, and a file has a secret too: want the login in one of them")
	for name, value := range map[string]string{"USER": a.User, "PASSWORD": a.Password, "TOKEN": a.Token} {
		check(value == "" || strings.TrimSpace(value) != "", p+name+" is blank: want a value, or leave it unset")
	}
	return errors.Join(problems...)
}

// checkFiles returns what is wrong with the files, joined.
func (a *access) checkFiles() error {
	var problems []error
	if a.Creds != "" {
		text, err := os.ReadFile(a.Creds)
		if err == nil {
			_, err = nkeys.ParseDecoratedUserNKey(text)
		}
		if err != nil {
			problems = append(problems, fileProblem(a.prefix+"CREDS", a.Creds, err))
		}
	}
	if a.Nkey != "" {
		if _, err := nats.NkeyOptionFromSeed(a.Nkey); err != nil {
			problems = append(problems, fileProblem(a.prefix+"NKEY", a.Nkey, err))
		}
	}

	problems = append(problems,
		checkSecret(a.prefix+"PASSWORD_FILE", a.PasswordFile),
		checkSecret(a.prefix+"TOKEN_FILE", a.TokenFile))

	if a.TLS.CA != "" {
		if _, err := a.roots(); err != nil {
			problems = append(problems, err)
		}
	}
	if a.TLS.Cert != "" && a.TLS.Key != "" { // else validate complains
		if _, err := tls.LoadX509KeyPair(a.TLS.Cert, a.TLS.Key); err != nil {
			problems = append(problems, fileProblem(a.prefix+"TLS_CERT with "+a.prefix+"TLS_KEY", a.TLS.Cert+" "+a.TLS.Key, err))
		}
	}
	return errors.Join(problems...)
}

// roots returns the certificates to trust.
func (a *access) roots() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	text, err := os.ReadFile(a.TLS.CA)
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = errors.New("it has no certificate: want one or more in PEM")
	}
	if err != nil {
		return nil, fmt.Errorf("%sTLS_CA %s: %w", a.prefix, a.TLS.CA, err)
	}
	return pool, nil
}

// login returns the first way to log in that is set; that of the URL counts only if it is asked for.
func (a *access) login(ofURL bool) (l leaf.Login) {
	switch {
	case a.Creds != "":
		l.CredsFile = a.Creds
	case a.Nkey != "":
		l.NkeyFile = a.Nkey
	case a.User != "":
		l.User, l.Password, l.PasswordFile = a.User, a.Password, a.PasswordFile
	case a.Token != "":
		l.Token = a.Token
	case a.TokenFile != "":
		l.TokenFile = a.TokenFile
	case ofURL:
		first, _, _ := strings.Cut(a.url, ",")
		if u, err := url.Parse(strings.TrimSpace(first)); err == nil {
			l = leaf.LoginOf(u)
		}
	}
	return l
}

// tls returns nil if no file is set. A certificate may be replaced while the service runs.
func (a *access) tls() (*tls.Config, error) {
	if a.TLS.CA+a.TLS.Cert == "" {
		return nil, nil
	}

	t := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if a.TLS.CA != "" {
		t.RootCAs, err = a.roots()
	}
	if a.TLS.Cert != "" {
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(a.TLS.Cert, a.TLS.Key)
			return &pair, err
		}
	}
	return t, err
}

// jetStreamOptions returns how JetStream's programs are served. The leaf node logs in, and trusts, as
// the client connection does, unless something else is set for it.
func (c *config) jetStreamOptions() (o bridge.JetStreamOptions, err error) {
	if o.LeafURL = c.LeafURL; o.LeafURL == "" {
		return o, nil
	}

	own, client := c.Leaf, &c.NATS
	if o.Login = own.login(false); !strings.Contains(o.LeafURL, "@") {
		o.Login = cmp.Or(o.Login, client.login(true))
	}
	if own.TLS.CA+own.TLS.Cert == "" {
		own.TLS = client.TLS
	}
	o.TLS, err = own.tls()
	return o, err
}
