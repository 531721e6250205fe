//! The published value does not implement `Serialize`.

use estafeta::Publisher;

struct Order {
    id: u64,
}

async fn publish(orders: Publisher<Order>) -> Result<(), estafeta::Error> {
    let order = Order { id: 17 };
    orders.publish(&order).key(order.id.to_string()).await?;
    Ok(())
}

fn main() {
    let _ = publish;
}
