//! Any transport behind one type: rmcp's client service is compiled for each type of transport that it is given, and is
//! large (decision 0012).

use futures::FutureExt;
use futures::future::BoxFuture;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::error::Error;

/// A transport of any type, with a box for each message.
pub(super) struct BoxedTransport(Box<dyn ObjectSafeTransport>);

/// The error of a transport of any type.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct BoxedTransportError(#[source] Box<dyn Error + Send + Sync>);

/// The error of the transport itself, which is boxed if the transport is.
pub(super) fn unbox_error<'a>(
    error: &'a (dyn Error + Send + Sync + 'static),
) -> &'a (dyn Error + Send + Sync + 'static) {
    error.downcast_ref::<BoxedTransportError>().map_or(error, |BoxedTransportError(inner)| &**inner)
}

trait ObjectSafeTransport: Send {
    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> BoxFuture<'static, Result<(), BoxedTransportError>>;
    fn receive(&mut self) -> BoxFuture<'_, Option<RxJsonRpcMessage<RoleClient>>>;
    fn close(&mut self) -> BoxFuture<'_, Result<(), BoxedTransportError>>;
}

impl<T: Transport<RoleClient>> ObjectSafeTransport for T {
    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> BoxFuture<'static, Result<(), BoxedTransportError>> {
        let sending = Transport::send(self, message);
        async move { sending.await.map_err(BoxedTransportError::new) }.boxed()
    }

    fn receive(&mut self) -> BoxFuture<'_, Option<RxJsonRpcMessage<RoleClient>>> {
        Transport::receive(self).boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, Result<(), BoxedTransportError>> {
        async { Transport::close(self).await.map_err(BoxedTransportError::new) }.boxed()
    }
}

impl BoxedTransport {
    pub(super) fn new(transport: impl Transport<RoleClient> + 'static) -> Self {
        Self(Box::new(transport))
    }
}

impl BoxedTransportError {
    fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }
}

impl Transport<RoleClient> for BoxedTransport {
    type Error = BoxedTransportError;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.0.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.0.receive().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.0.close().await
    }
}
