/* Tells systemd, where it started this process with Type=notify, that it serves and that it ends.
 *
 * sd_notify(3)'s protocol is one datagram to $NOTIFY_SOCKET and promised to stay; a library for it would be
 * the only use of libsystemd here. Without the variable nothing happens. Any thread. */
#ifndef QUIRE_TOOLS_NOTIFY_H
#define QUIRE_TOOLS_NOTIFY_H

void notify_ready(void);
void notify_stopping(void);

#endif
