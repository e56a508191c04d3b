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
	prefix string // of its variables

	url, creds, nkey              string
	user, password, passwordFile  string
	token, tokenFile              string
	caFile, certFile, certKeyFile string
}

func (c *config) natsAccess() *access {
	return &access{natsPrefix, c.NATSURL, c.NATSCreds, c.NATSNkey, c.NATSUser, c.NATSPassword, c.NATSPasswordFile,
		c.NATSToken, c.NATSTokenFile, c.NATSTLSCA, c.NATSTLSCert, c.NATSTLSKey}
}

func (c *config) leafAccess() *access {
	return &access{leafPrefix, c.LeafURL, c.LeafCreds, c.LeafNkey, c.LeafUser, c.LeafPassword, c.LeafPasswordFile,
		c.LeafToken, c.LeafTokenFile, c.LeafTLSCA, c.LeafTLSCert, c.LeafTLSKey}
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
	check((a.certFile == "") == (a.certKeyFile == ""), fmt.Sprintf("%sTLS_CERT is %q and %sTLS_KEY %q: want both or none", p, a.certFile, p, a.certKeyFile))
	check(a.password == "" || a.user != "", p+"PASSWORD is set and "+p+"USER is empty: want both or none")
	check(a.passwordFile == "" || a.user != "", p+"PASSWORD_FILE is set and "+p+"USER is empty: want both or none")
	check(a.password == "" || a.passwordFile == "", p+"PASSWORD and "+p+"PASSWORD_FILE are both set: want one of them")
	check(a.token == "" || a.tokenFile == "", p+"TOKEN and "+p+"TOKEN_FILE are both set: want one of them")
	check(a.passwordFile+a.tokenFile == "" || !strings.Contains(a.url, "@"),
		p+"URL names a user, and a file has a secret too: want the login in one of them")
	for name, value := range map[string]string{"USER": a.user, "PASSWORD": a.password, "TOKEN": a.token} {
		check(value == "" || strings.TrimSpace(value) != "", p+name+" is blank: want a value, or leave it unset")
	}
	return errors.Join(problems...)
}

// checkFiles returns what is wrong with the files, joined.
func (a *access) checkFiles() error {
	var problems []error
	if a.creds != "" {
		text, err := os.ReadFile(a.creds)
		if err == nil {
			_, err = nkeys.ParseDecoratedUserNKey(text)
		}
		if err != nil {
			problems = append(problems, fileProblem(a.prefix+"CREDS", a.creds, err))
		}
	}
	if a.nkey != "" {
		if _, err := nats.NkeyOptionFromSeed(a.nkey); err != nil {
			problems = append(problems, fileProblem(a.prefix+"NKEY", a.nkey, err))
		}
	}

	problems = append(problems,
		checkSecret(a.prefix+"PASSWORD_FILE", a.passwordFile),
		checkSecret(a.prefix+"TOKEN_FILE", a.tokenFile))

	if a.caFile != "" {
		if _, err := a.roots(); err != nil {
			problems = append(problems, err)
		}
	}
	if a.certFile != "" && a.certKeyFile != "" { // else validate complains
		if _, err := tls.LoadX509KeyPair(a.certFile, a.certKeyFile); err != nil {
			problems = append(problems, fileProblem(a.prefix+"TLS_CERT with "+a.prefix+"TLS_KEY", a.certFile+" "+a.certKeyFile, err))
		}
	}
	return errors.Join(problems...)
}

// roots returns the certificates to trust.
func (a *access) roots() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	text, err := os.ReadFile(a.caFile)
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = errors.New("it has no certificate: want one or more in PEM")
	}
	if err != nil {
		return nil, fmt.Errorf("%sTLS_CA %s: %w", a.prefix, a.caFile, err)
	}
	return pool, nil
}

// login returns the first way to log in that is set; that of the URL counts only if it is asked for.
func (a *access) login(ofURL bool) (l leaf.Login) {
	switch {
	case a.creds != "":
		l.CredsFile = a.creds
	case a.nkey != "":
		l.NkeyFile = a.nkey
	case a.user != "":
		l.User, l.Password, l.PasswordFile = a.user, a.password, a.passwordFile
	case a.token != "":
		l.Token = a.token
	case a.tokenFile != "":
		l.TokenFile = a.tokenFile
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
	if a.caFile+a.certFile == "" {
		return nil, nil
	}

	t := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if a.caFile != "" {
		t.RootCAs, err = a.roots()
	}
	if a.certFile != "" {
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(a.certFile, a.certKeyFile)
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

	own, client := c.leafAccess(), c.natsAccess()
	if o.Login = own.login(false); !strings.Contains(o.LeafURL, "@") {
		o.Login = cmp.Or(o.Login, client.login(true))
	}
	if own.caFile+own.certFile == "" {
		own.caFile, own.certFile, own.certKeyFile = client.caFile, client.certFile, client.certKeyFile
	}
	o.TLS, err = own.tls()
	return o, err
}
